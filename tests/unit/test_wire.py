"""Every dataclass of the contracts and its message are one shape."""

import importlib
import inspect
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import pytest

from fastvideo import wire
from fastvideo.api.common.v1 import request_pb2
from fastvideo.artifacts.events import ByteRange
from fastvideo.errors import InvalidField
from fastvideo.requests.events import RequestAccepted
from fastvideo.requests.types import (
    ErrorDetail,
    LatentPart,
    OutputSpec,
    RequestKind,
    RequestSpec,
    SamplingParams,
    TextPart,
)
from fastvideo.scheduling.events import DeferLoop, SchedulerDecided
from fastvideo.scheduling.work import LoopRef

MODULES = (
    "artifacts.events",
    "artifacts.types",
    "deployment.card",
    "events.types",
    "explain.types",
    "model.caching",
    "model.specs",
    "model.tensors",
    "program.specs",
    "replay.types",
    "requests.behavior",
    "requests.events",
    "requests.sealing",
    "requests.types",
    "scheduling.commands",
    "scheduling.events",
    "scheduling.traces",
    "scheduling.work",
    "sessions.events",
    "sessions.types",
    "requests.behavior",
    "model.transfers",
)


def dataclasses_of(name: str) -> list[type]:
    module = importlib.import_module(f"fastvideo.{name}")
    return [
        member
        for member in vars(module).values()
        if inspect.isclass(member)
        and member.__module__ == module.__name__
        and hasattr(member, "__dataclass_fields__")
    ]


@pytest.mark.parametrize("module", MODULES)
def test_dataclasses_have_the_fields_of_their_messages(module: str) -> None:
    classes = dataclasses_of(module)
    assert classes
    for cls in classes:
        wire.check(cls)


def spec(**changes: object) -> RequestSpec:
    values: dict[str, object] = {
        "request_id": "req_1",
        "kind": RequestKind.GENERATION,
        "model_id": "moving-digits",
        "inputs": (TextPart(role="prompt", text="a red three"), LatentPart(artifact_id="art_1")),
        "sampling": SamplingParams(width=48, steps=20, guidance_scale=3.0, seed=2**63),
        "outputs": OutputSpec(video=True),
        "deadline": datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    }
    return RequestSpec(**(values | changes))  # type: ignore[arg-type]


def test_a_value_comes_back_as_it_went() -> None:
    accepted = RequestAccepted(spec=spec())
    assert wire.decode(RequestAccepted, wire.encode(accepted)) == accepted


def test_unions_inside_repeated_fields_come_back() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    loop = LoopRef(request_id="req_1", node_id="denoise", attempt=1)
    decided = SchedulerDecided(at=at, decisions=(DeferLoop(loop=loop, reason="compute"),))
    assert wire.decode(SchedulerDecided, wire.encode(decided)) == decided


def test_an_unspecified_enum_is_refused_by_name() -> None:
    message = wire.to_proto(spec())
    message.kind = request_pb2.REQUEST_KIND_UNSPECIFIED
    with pytest.raises(InvalidField, match=r"RequestSpec\.kind") as caught:
        wire.from_proto(RequestSpec, message)
    assert "generation" in caught.value.allowed


def test_an_absent_message_is_refused_by_name() -> None:
    message = wire.to_proto(spec())
    message.ClearField("sampling")
    with pytest.raises(InvalidField, match=r"RequestSpec\.sampling"):
        wire.from_proto(RequestSpec, message)


@pytest.mark.parametrize(
    ("seconds", "nanos"), [(2**63 - 1, 0), (-(2**63), 0), (253_402_300_800, 0), (0, -1)]
)
def test_a_moment_that_is_none_is_refused_by_name(seconds: int, nanos: int) -> None:
    message = wire.to_proto(spec())
    message.deadline.seconds, message.deadline.nanos = seconds, nanos
    with pytest.raises(InvalidField, match=r"RequestSpec\.deadline"):
        wire.from_proto(RequestSpec, message)


def test_a_value_that_came_is_as_frozen_as_one_that_was_made() -> None:
    loop = LoopRef(request_id="req_1", node_id="denoise", attempt=1)
    came = wire.decode(LoopRef, wire.encode(loop))
    assert type(came) is LoopRef
    assert hash(came) == hash(loop)
    with pytest.raises(FrozenInstanceError):
        came.attempt = 2  # type: ignore[misc]


def test_a_value_that_checks_itself_does_so_when_it_comes() -> None:
    message = wire.to_proto(ByteRange(start=1, stop=2))
    message.stop = 1
    with pytest.raises(InvalidField, match=r"byte_range\.stop"):
        wire.from_proto(ByteRange, message)


def test_maps_come_in_the_order_of_their_keys() -> None:
    given = {f"k{i}": str(i) for i in reversed(range(50))}
    error = wire.decode(ErrorDetail, wire.encode(ErrorDetail(reason="R", attributes=given)))
    assert list(error.attributes) == sorted(given)
