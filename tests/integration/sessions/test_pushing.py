"""Texts pushed to sessions, what they and the memory add to prompts, and the end of both."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest

from fastvideo import wire
from fastvideo.api.common.v1 import request_pb2, session_pb2
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.api.sessions.v1 import sessions_pb2
from fastvideo.errors import AlreadyExists, FailedPrecondition, InvalidField, NotFound
from fastvideo.events.catalog import event_of
from fastvideo.requests.events import RequestCompleted
from fastvideo.requests.types import RequestMetrics, RequestSpec, TextPart
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.sessions.conditioning import own_prompt
from fastvideo.sessions.state import stream_of
from tests.integration.gateway.worlds import MODEL
from tests.integration.sessions.worlds import SessionWorld
from tests.plugins.waiting import eventually

MEMORY = session_pb2.SESSION_CONDITIONING_MEMORY
PUSHED = session_pb2.SESSION_CONDITIONING_PUSHED


async def push(world: SessionWorld, session_id: str, text: str, **fields: Any) -> Any:
    given = {"role": "context", **fields}
    request = sessions_pb2.PushTextRequest(session_id=session_id, text=text, **given)
    return await world.stub.PushText(request)


async def ask(world: SessionWorld, session_id: str, prompt: str, key: str = "") -> RequestSpec:
    """Submit, and give the accepted spec."""
    text = request_pb2.TextPart(role="prompt", text=prompt)
    request = gateway_pb2.SubmitRequestRequest(
        model_id=MODEL,
        session_id=session_id,
        inputs=[request_pb2.InputPart(text=text)],
        idempotency_key=key,
    )
    response = await world.gateway.stub.SubmitRequest(request)
    return wire.from_proto(RequestSpec, response.state.spec)


def part_of(spec: RequestSpec) -> TextPart:
    texts = (part for part in spec.inputs if isinstance(part, TextPart))
    return next(part for part in texts if part.role == "prompt")


def prompt_of(spec: RequestSpec) -> str:
    return part_of(spec).text


@pytest.mark.row("SES-03")
async def test_a_pushed_text_is_durable_and_conditions_later_requests(world: SessionWorld) -> None:
    session_id = (await world.create(conditioning=PUSHED)).session_id
    before = await ask(world, session_id, "a red three")
    answer = await push(world, session_id, "black background")
    assert answer.pushed.text == "black background"
    assert [text.push_id for text in answer.state.context_texts] == [answer.pushed.push_id]
    await push(world, session_id, "a blue two", role="prompt")
    after = await ask(world, session_id, "a green one")
    assert prompt_of(before) == "a red three"
    assert prompt_of(after) == "black background. a blue two. a green one"
    assert own_prompt(after) == "a green one"
    stored = await world.gateway.log.read_stream(stream_of(session_id))
    names = [event_of(event).name for event in stored]
    assert names.count("session.text_pushed") == 2


@pytest.mark.row("SES-10")
async def test_the_memory_of_prompts_stands_in_the_spec_of_the_next_request(
    world: SessionWorld,
) -> None:
    session_id = (await world.create(conditioning=MEMORY)).session_id
    await push(world, session_id, "night")
    # Without a pause: the memory of a request is one append with it.
    first = await ask(world, session_id, "a red three")
    second = await ask(world, session_id, "a blue two", key="k")
    assert prompt_of(second) == "night. a red three. a blue two"
    sources = [(s.role, s.source_id) for s in part_of(second).segments]
    assert sources[1:] == [("prompt", first.request_id), ("own", "")]
    # A repeat is the same request, whatever was remembered since.
    again = await ask(world, session_id, "a blue two", key="k")
    assert again == second
    state = await world.get(session_id)
    # Remembered are the user's own words, once.
    assert [entry.prompt for entry in state.prompt_memory] == ["a red three", "a blue two"]


@pytest.mark.slow
async def test_what_does_not_fit_the_model_is_left_out_the_oldest_first(
    world: SessionWorld,
) -> None:
    session_id = (await world.create(conditioning=MEMORY)).session_id
    await push(world, session_id, "night")
    prompts = [f"a red three moving left number {i}" for i in range(8)]
    for prompt in prompts:
        spec = await ask(world, session_id, prompt)
    text = prompt_of(spec)
    assert text.startswith("night. ")
    assert text.endswith(prompts[-1])
    # As many of the newest as there is room for, without a gap.
    kept = [prompt for prompt in prompts if prompt in text]
    assert kept == prompts[-len(kept) :]
    assert 1 < len(kept) < len(prompts)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(world, session_id, "three " * 60)
    assert from_rpc_error(caught.value).reason == "PROMPT_TOO_LONG"


@pytest.mark.slow
async def test_requests_at_once_of_one_memory_each_see_those_before(world: SessionWorld) -> None:
    session_id = (await world.create(conditioning=MEMORY)).session_id
    specs = await asyncio.gather(*(ask(world, session_id, f"r{i}") for i in range(6)))
    order = [entry.request_id for entry in (await world.get(session_id)).prompt_memory]
    assert sorted(order) == sorted(spec.request_id for spec in specs)
    by_id = {spec.request_id: spec for spec in specs}
    for place, request_id in enumerate(order):
        sources = [s.source_id for s in part_of(by_id[request_id]).segments[:-1]]
        assert sources == order[:place]


async def test_a_request_that_is_heard_of_again_after_its_end_does_not_begin_again(
    world: SessionWorld,
) -> None:
    session_id = (await world.create(conditioning=MEMORY)).session_id
    spec = await ask(world, session_id, "a red three")
    assert (await world.get(session_id)).cancel_scopes == [f"request/{spec.request_id}"]
    await world.gateway.schedule(spec.request_id, RequestCompleted(metrics=RequestMetrics()))

    async def ended() -> bool:
        return not (await world.get(session_id)).cancel_scopes

    await eventually(ended)
    (stored, *_) = await world.gateway.log.read_stream(f"request-{spec.request_id}")
    parts = world.sessions.core.consumer
    assert await parts.handle(event_of(stored)) is None
    assert [e.prompt for e in (await world.get(session_id)).prompt_memory] == ["a red three"]
    # Deleted, it is not remembered either, and stands before no prompt.
    delete = gateway_pb2.DeleteRequestRequest(request_id=spec.request_id)
    await world.gateway.stub.DeleteRequest(delete)

    async def forgotten() -> bool:
        return not (await world.get(session_id)).prompt_memory

    await eventually(forgotten)
    assert prompt_of(await ask(world, session_id, "a blue two")) == "a blue two"


async def test_one_key_pushes_one_text(world: SessionWorld) -> None:
    session_id = (await world.create()).session_id
    answers = await asyncio.gather(
        *(push(world, session_id, "night", idempotency_key="k") for _ in range(5))
    )
    assert len({answer.pushed.push_id for answer in answers}) == 1
    assert len((await world.get(session_id)).context_texts) == 1
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await push(world, session_id, "day", idempotency_key="k")
    assert isinstance(from_rpc_error(caught.value), AlreadyExists)


BAD: list[tuple[dict[str, Any], type, str]] = [
    ({"role": "system"}, InvalidField, "role"),
    ({"text": " "}, InvalidField, "text"),
    ({"text": "x" * 2001}, InvalidField, "text"),
    ({"idempotency_key": "a\n"}, InvalidField, "idempotency_key"),
    ({"session_id": "ses_none"}, NotFound, "session_id"),
    ({"session_id": ""}, InvalidField, "session_id"),
]


async def test_a_wrong_push_is_refused_by_name_and_stores_nothing(world: SessionWorld) -> None:
    session_id = (await world.create()).session_id
    before = await world.gateway.size()
    for fields, kind, subject in BAD:
        given = {"session_id": session_id, "text": "night", **fields}
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await push(world, **given)
        error = from_rpc_error(caught.value)
        assert type(error) is kind, fields
        assert error.subject == subject
    text = request_pb2.TextPart(role="prompt", text="a red three")
    text.segments.add(role="own", stop=3)
    with pytest.raises(grpc.aio.AioRpcError, match="segments"):
        await world.gateway.stub.SubmitRequest(
            gateway_pb2.SubmitRequestRequest(
                model_id=MODEL, inputs=[request_pb2.InputPart(text=text)]
            )
        )
    assert await world.gateway.size() == before


@pytest.mark.row("SES-12")
async def test_a_session_that_times_out_lets_go_of_what_it_held(world: SessionWorld) -> None:
    created = await world.create(conditioning=MEMORY, inactivity_timeout_s=3600)
    session_id = created.session_id
    await push(world, session_id, "night")
    await push(world, session_id, "a red three", role="prompt")
    index = world.sessions.core.parts.index
    far = datetime.now(UTC) + timedelta(hours=2)

    async def closed() -> bool:
        await world.sessions.core.expiry.close_due(far)
        request = sessions_pb2.ListSessionsRequest(page_size=10)
        listed = (await world.stub.ListSessions(request)).states
        (state,) = [one for one in listed if one.session_id == session_id]
        held = (len(state.context_texts), len(state.prompt_memory))
        return (state.close_reason, held) == ("inactive", (0, 0))

    await eventually(closed)
    assert await index.list_expired(far, 10) == ()
    state = await world.get(session_id)
    assert (len(state.context_texts), len(state.prompt_memory)) == (0, 0)
    for call in (ask(world, session_id, "a blue two"), push(world, session_id, "day")):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        error = from_rpc_error(caught.value)
        assert isinstance(error, FailedPrecondition)
        assert (error.reason, error.subject) == ("SESSION_CLOSED", "session_id")
