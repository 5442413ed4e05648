"""Who holds a request, and what happens when nobody does any more."""

import asyncio

from fastvideo.errors import Unavailable
from fastvideo.rpc.identity import Caller, Role, current_tenant
from fastvideo_gateway.http.openai.holding import REASON, Holds

CALLER = Caller(tenant_id="acme", role=Role.USER)


class Cancelled:
    """What was cancelled, for whom and why."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    async def __call__(self, request_id: str, reason: str) -> None:
        self.asked.append((current_tenant(), request_id, reason))
        if request_id == "lost":
            raise Unavailable("the log is away")


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_the_last_who_waits_and_goes_cancels_for_the_caller() -> None:
    cancelled = Cancelled()
    holds = Holds(cancelled)
    assert holds.hold("r1", made_before=False)
    assert holds.hold("r1", made_before=True)
    holds.release(["r1"], CALLER, ended=False)
    await turns()
    assert cancelled.asked == []
    holds.release(["r1"], CALLER, ended=False)
    await turns()
    assert cancelled.asked == [("acme", "r1", REASON)]


async def test_what_somebody_else_made_is_watched_and_not_held() -> None:
    cancelled = Cancelled()
    holds = Holds(cancelled)
    assert not holds.hold("job", made_before=True)
    holds.release([], CALLER, ended=False)
    await turns()
    assert cancelled.asked == []


async def test_what_has_ended_is_not_cancelled_and_one_failure_stops_no_other() -> None:
    cancelled = Cancelled()
    holds = Holds(cancelled)
    for request_id in ("done", "lost", "other"):
        holds.hold(request_id, made_before=False)
    holds.release(["done"], CALLER, ended=True)
    holds.release(["lost", "other"], CALLER, ended=False)
    await turns()
    assert [request_id for _, request_id, _ in cancelled.asked] == ["lost", "other"]
