"""Calls that are tried again until their time is up."""

import pytest

from fastvideo.client.calls import CallPolicy, call
from fastvideo.errors import DeadlineExceeded, FastVideoError, Unavailable

POLICY = CallPolicy(timeout_s=60.0, retry_first_s=0.001, retry_s_max=0.001)


class Server:
    """Fails with one error after the other."""

    def __init__(self, *errors: FastVideoError) -> None:
        self._errors = list(errors)

    async def __call__(self, request: str, /, *, timeout: float) -> str:  # noqa: ASYNC109 - as stubs have it
        assert timeout > 0
        if self._errors:
            raise self._errors.pop(0)
        return request


async def test_one_that_is_away_for_a_while_is_waited_for() -> None:
    away = [Unavailable("starting") for _ in range(5)]
    assert await call(Server(*away), "asked", POLICY) == "asked"


async def test_one_that_was_away_is_told_so_though_the_last_try_had_too_little_time() -> None:
    server = Server(
        Unavailable("starting"), Unavailable("starting still"), DeadlineExceeded("1 ms")
    )
    with pytest.raises(Unavailable, match="starting still"):
        await call(server, "asked", POLICY)


async def test_one_that_takes_too_long_exceeds_the_deadline() -> None:
    with pytest.raises(DeadlineExceeded):
        await call(Server(DeadlineExceeded("60 s")), "asked", POLICY)
