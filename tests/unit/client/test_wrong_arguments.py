"""An argument that is wrong is refused by its name, before anything is sent to anybody."""

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fastvideo.client import AsyncClient, BatchItem, CallPolicy, Client
from fastvideo.errors import InvalidField
from fastvideo.requests.types import OutputSpec

NOBODY = "127.0.0.1:1"


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    # Typed as no program is, so that it can be used wrongly.
    async with AsyncClient(NOBODY, policy=CallPolicy(timeout_s=0.2)) as opened:
        yield opened


Call = Callable[[Any], Any]
NAIVE = datetime(2030, 1, 1)
ITEM = BatchItem(id="a", prompt="x")
WRONG: list[tuple[str, Call]] = [
    ("prompt", lambda c: c.submit(None)),
    ("deadline", lambda c: c.submit("x", deadline=NAIVE)),
    ("outputs", lambda c: c.submit("x", outputs="video")),
    ("outputs.ttl_s", lambda c: c.submit("x", outputs=OutputSpec(ttl_s=2**32))),
    ("outputs", lambda c: c.submit("x", outputs=OutputSpec(video="yes"))),  # type: ignore[arg-type]
    ("sampling", lambda c: c.submit("x", sampling={"steps": 4})),
    ("idempotency_key", lambda c: c.submit("x", idempotency_key=5)),
    ("timeout_s", lambda c: c.submit("x", timeout_s="5")),
    ("timeout_s", lambda c: c.wait("x", timeout_s="5")),
    ("status", lambda c: c.list(status="done")),
    ("page_size", lambda c: c.list(page_size=-1)),
    ("request_id", lambda c: c.get(5)),
    ("request_id", lambda c: c.cancel(5)),
    ("stream", lambda c: c.cancel("req_1", loop="denoise", stream="video")),
    ("request_id", lambda c: anext(c.watch(5))),
    ("after_sequence", lambda c: anext(c.watch("req_1", after_sequence=-1))),
    ("request", lambda c: c.show(5)),
    ("source", lambda c: c.upload(5)),
    ("kind", lambda c: c.upload(b"x", kind="latnet")),
    ("model_id", lambda c: c.describe_model(None)),
    ("model_ids", lambda c: c.create_session(model_ids="moving-digits")),
    ("conditioning", lambda c: c.create_session(conditioning="all")),
    ("kind", lambda c: c.replay("again")),
    ("sample", lambda c: c.replay("cache", sample="half")),
    ("request_id", lambda c: c.explain(5)),
    ("where", lambda c: anext(c.behaviors({"policy": 5}))),
    ("wanted", lambda c: anext(c.log.read("request.failed"))),
    ("name", lambda c: c.keys.create(5)),
    ("expires_at", lambda c: c.keys.create("x", expires_at=NAIVE)),
    ("policy", lambda c: c.keys.set_policy("x", {"live_requests_max": 1})),
    ("items[0]", lambda c: c.batch(["x"], Path("nowhere"))),
    ("at_once", lambda c: c.batch([ITEM], Path("nowhere"), at_once=0)),
]


@pytest.mark.parametrize(("name", "call"), WRONG)
async def test_a_wrong_value_is_refused_by_its_argument(
    client: AsyncClient, name: str, call: Call
) -> None:
    with pytest.raises(InvalidField) as caught:
        await call(client)
    assert caught.value.field == name
    assert caught.value.allowed


@pytest.mark.parametrize(
    ("name", "meant", "call"),
    [
        ("step", "steps", lambda c: c.submit("x", step=4)),
        ("negative", "negative_prompt", lambda c: c.generate("x", negative="blue")),
        ("progres", "progress", lambda c: c.generate("x", progres=True)),
        ("smaple", "sample", lambda c: c.replay("cache", smaple=0.5)),
        ("condtioning", "conditioning", lambda c: c.session(condtioning="memory")),
    ],
)
async def test_a_name_that_there_is_not_is_answered_with_the_one_that_is_meant(
    client: AsyncClient, name: str, meant: str, call: Call
) -> None:
    with pytest.raises(InvalidField, match=f"did you mean {meant}\\?") as caught:
        await call(client)
    assert (caught.value.field, caught.value.reason) == (name, "UNKNOWN_FIELD")


def test_the_client_for_threads_says_the_same() -> None:
    with Client(NOBODY, policy=CallPolicy(timeout_s=0.2)) as client:
        wrong: Any = client
        for call in (
            lambda: wrong.submit("x", step=4),
            lambda: wrong.generate("x", step=4),
            lambda: wrong.session(step=4),
        ):
            with pytest.raises(InvalidField) as caught:
                call()
            assert caught.value.field == "step"


def test_options_of_a_session_that_is_there_are_not_passed_over() -> None:
    with Client(NOBODY) as client, pytest.raises(InvalidField) as caught:
        client.session("ses_1", conditioning="memory")
    assert caught.value.field == "conditioning"


@pytest.mark.parametrize(
    "address", ["nonsense", "127.0.0.1", "http://127.0.0.1:80", "", None, ":1"]
)
def test_an_address_that_is_none_is_refused_at_once(address: Any) -> None:
    for kind in (AsyncClient, Client):
        with pytest.raises(InvalidField) as caught:
            kind(address)
        assert caught.value.field == "address"
