"""Submit over gRPC: durable and complete, or refused by name with nothing stored."""

import asyncio
import contextlib
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from fastvideo.api.common.v1 import request_pb2
from fastvideo.api.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from fastvideo.errors import (
    AlreadyExists,
    FailedPrecondition,
    FastVideoError,
    InvalidField,
    NotFound,
)
from fastvideo.events.catalog import event_of
from fastvideo.requests.events import RequestAccepted
from fastvideo.requests.state import stream_of
from fastvideo.rpc.errors import from_rpc_error
from tests.integration.gateway.worlds import World, submit_message


async def refusal(world: World, message: gateway_pb2.SubmitRequestRequest) -> FastVideoError:
    """The typed error that a submit gets."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.stub.SubmitRequest(message)
    return from_rpc_error(caught.value)


@pytest.mark.row("EVT-01", "MOD-13")
async def test_an_accepted_request_is_in_the_log_before_the_answer_and_found_at_once(
    world: World,
) -> None:
    response = await world.stub.SubmitRequest(submit_message())
    spec = response.state.spec
    (stored,) = await world.log.read_stream(stream_of(spec.request_id))
    event = event_of(stored)
    assert isinstance(event.payload, RequestAccepted)
    assert event.payload.spec.request_id == spec.request_id
    assert event.metadata.request_id == spec.request_id
    assert event.metadata.program_id == "text_to_video"
    assert event.name == "request.accepted"
    assert (spec.sampling.steps, spec.sampling.width, spec.sampling.guidance_scale) == (20, 48, 3.0)
    assert "sampling.seed" in spec.defaulted
    got = await world.stub.GetRequest(gateway_pb2.GetRequestRequest(request_id=spec.request_id))
    assert got.state == response.state
    assert got.state.status == request_pb2.REQUEST_STATUS_ACCEPTED


async def test_what_is_given_is_used_exactly(world: World) -> None:
    sampling = request_pb2.SamplingOverrides(
        width=64,
        height=32,
        num_frames=5,
        fps=4,
        steps=3,
        guidance_scale=1.5,
        flow_shift=2.0,
        seed=9,
        sampler="flow_sde",
        noise_level=0.25,
    )
    outputs = request_pb2.OutputSpec(sheet=True, latents=True, capture=request_pb2.CAPTURE_BEHAVIOR)
    response = await world.stub.SubmitRequest(
        submit_message(sampling=sampling, outputs=outputs, priority=5)
    )
    spec = response.state.spec
    for field in sampling.DESCRIPTOR.fields:
        assert getattr(spec.sampling, field.name) == getattr(sampling, field.name)
    assert (spec.outputs, spec.priority) == (outputs, 5)
    assert not any(name.startswith(("sampling", "outputs")) for name in spec.defaulted)


async def test_a_seed_that_is_left_out_is_random_and_told(world: World) -> None:
    seeds = set()
    for _ in range(4):
        response = await world.stub.SubmitRequest(submit_message())
        seeds.add(response.state.spec.sampling.seed)
    assert len(seeds) == 4


def sampled(**fields: Any) -> gateway_pb2.SubmitRequestRequest:
    return submit_message(sampling=request_pb2.SamplingOverrides(**fields))


def with_unknown_field() -> gateway_pb2.SubmitRequestRequest:
    # Field 99, a varint: what a client with a newer proto would send.
    message = submit_message()
    message.MergeFromString(b"\x98\x06\x01")
    return message


def with_unknown_sampling() -> gateway_pb2.SubmitRequestRequest:
    sampling = request_pb2.SamplingOverrides()
    sampling.MergeFromString(b"\x98\x06\x01")
    return submit_message(sampling=sampling)


def with_image() -> gateway_pb2.SubmitRequestRequest:
    message = submit_message()
    message.inputs.add().image.role = "image"
    return message


def with_part(name: str) -> gateway_pb2.SubmitRequestRequest:
    """A prompt and a part of another kind, for a program that takes text alone."""
    message = submit_message()
    getattr(message.inputs.add(), name).role = f"some_{name}"
    return message


def with_empty_part() -> gateway_pb2.SubmitRequestRequest:
    message = submit_message()
    message.inputs.add()
    return message


def past() -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(datetime.now(UTC) - timedelta(seconds=1))
    return stamp


BAD_INPUT: list[tuple[Callable[[], gateway_pb2.SubmitRequestRequest], type, str, str]] = [
    (lambda: submit_message(model_id="sora"), NotFound, "model_id", "moving-digits"),
    (lambda: submit_message(model_id=""), InvalidField, "model_id", "moving-digits"),
    (lambda: submit_message(None), InvalidField, "inputs", "prompt"),
    (lambda: submit_message(""), InvalidField, "inputs[0].text.text", "1 to 2000 characters"),
    (lambda: submit_message("a" * 100_000), InvalidField, "inputs[0].text.text", "at most 2000"),
    (lambda: submit_message("red " * 40), InvalidField, "prompt", "at most 32 tokens"),
    (lambda: submit_message("a\0b"), InvalidField, "inputs[0].text.text", "NUL"),
    (lambda: sampled(width=63, height=64), InvalidField, "sampling.width", "nearest: 48 or 64"),
    (lambda: sampled(width=480, height=700), InvalidField, "sampling.width", "16 to 256"),
    (lambda: sampled(steps=0), InvalidField, "sampling.steps", "1 to 1000"),
    (lambda: sampled(seed=-1), InvalidField, "sampling.seed", "0 to"),
    (lambda: sampled(guidance_scale=math.nan), InvalidField, "sampling.guidance_scale", "1 to 20"),
    (lambda: sampled(flow_shift=math.inf), InvalidField, "sampling.flow_shift", "0.1 to 20"),
    (lambda: sampled(sampler="euler"), InvalidField, "sampling.sampler", "flow_sde"),
    (lambda: sampled(noise_level=0.5), InvalidField, "sampling.noise_level", "flow_sde"),
    (lambda: sampled(num_frames=8), InvalidField, "sampling.num_frames", "nearest: 5 or 9"),
    (with_unknown_field, InvalidField, "99", "idempotency_key"),
    (with_unknown_sampling, InvalidField, "sampling.99", "guidance_scale"),
    (with_image, InvalidField, "inputs[1].image.role", "prompt, negative_prompt"),
    *(
        (partial(with_part, name), InvalidField, f"inputs[1].{name}.role", "prompt, negative")
        for name in ("text", "image", "video", "audio", "action", "latent")
    ),
    (with_empty_part, InvalidField, "inputs[1]", "text, image"),
    (lambda: submit_message(kind=42), InvalidField, "kind", "generation"),
    (lambda: submit_message(program_id="nope"), InvalidField, "program_id", "text_to_video"),
    (lambda: submit_message(program_id="encode_text"), InvalidField, "program_id", "text_to_video"),
    (lambda: submit_message(priority=1000), InvalidField, "priority", "-100 to 100"),
    (lambda: submit_message(deadline=past()), InvalidField, "deadline", "a time after"),
    (lambda: submit_message(idempotency_key="k" * 201), InvalidField, "idempotency_key", "200"),
    (lambda: submit_message(session_id="ses_none"), NotFound, "session_id", "ses_none"),
    (
        lambda: submit_message(model_id="wan2.1-t2v-1.3b"),
        FailedPrecondition,
        "wan2.1-t2v-1.3b",
        "no checkpoint",
    ),
]  # fmt: skip


@pytest.mark.row("API-17", "REQ-02", "REQ-03", "LAY-05")
async def test_bad_input_is_refused_by_name_and_stores_nothing(world: World) -> None:
    await world.submit()
    before = await world.size()
    for make, kind, subject, says in BAD_INPUT:
        error = await refusal(world, make())
        assert type(error) is kind, (subject, error)
        assert error.subject == subject
        told = f"{error.message} {error.attributes.get('allowed', '')}"
        assert says in told, told
    assert await world.size() == before


async def test_one_key_is_one_request_under_twenty_concurrent_submits(world: World) -> None:
    message = submit_message(idempotency_key="k1")
    responses = await asyncio.gather(*(world.stub.SubmitRequest(message) for _ in range(20)))
    assert len({response.state.spec.request_id for response in responses}) == 1
    assert sorted(response.repeated for response in responses) == [False] + [True] * 19
    assert len({response.state.spec.sampling.seed for response in responses}) == 1
    assert await world.size() == 1


async def test_a_key_that_was_used_for_something_else_is_refused(world: World) -> None:
    first = await world.submit("a red three", idempotency_key="k")
    error = await refusal(world, submit_message("a blue four", idempotency_key="k"))
    assert isinstance(error, AlreadyExists)
    assert error.subject == "idempotency_key"
    assert error.attributes["used_for"] == first
    assert await world.size() == 1


async def accepted_shortly_before_its_deadline(
    world: World,
) -> tuple[gateway_pb2.SubmitRequestRequest, gateway_pb2.SubmitRequestResponse]:
    """A submit and its answer, however slow the machine is."""
    for seconds in (2, 8, 32):
        deadline = Timestamp()
        deadline.FromDatetime(datetime.now(UTC) + timedelta(seconds=seconds))
        message = submit_message(idempotency_key="k", deadline=deadline)
        with contextlib.suppress(grpc.aio.AioRpcError):
            return message, await world.stub.SubmitRequest(message)
    raise AssertionError("no request was accepted in time")


async def test_a_repeat_is_answered_with_the_request_as_it_stands(world: World) -> None:
    message, first = await accepted_shortly_before_its_deadline(world)
    while datetime.now(UTC) < message.deadline.ToDatetime(tzinfo=UTC):
        await asyncio.sleep(0.05)
    # By now the same draft would be refused, but this one was accepted in its time.
    again = await world.stub.SubmitRequest(message)
    assert again.repeated
    assert again.state == first.state


async def test_the_trace_of_the_caller_goes_into_the_log(world: World) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    metadata = (("traceparent", f"00-{trace_id}-00f067aa0ba902b7-01"),)
    # Not by the world's own channel, which names its own span when spans are made.
    async with grpc.aio.insecure_channel(world.gateway.address) as channel:
        stub = gateway_pb2_grpc.GatewayServiceStub(channel)
        response = await stub.SubmitRequest(submit_message(), metadata=metadata)
    (stored,) = await world.log.read_stream(stream_of(response.state.spec.request_id))
    assert trace_id in event_of(stored).metadata.traceparent


async def test_a_clients_deadline_is_honoured(world: World) -> None:
    request_id = await world.submit()
    watch = world.stub.WatchRequest(
        gateway_pb2.WatchRequestRequest(request_id=request_id), timeout=0.3
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in watch:
            pass
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
