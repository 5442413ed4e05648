"""Submit messages as drafts of requests."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from fastvideo import wire
from fastvideo.api.common.v1 import request_pb2
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.errors import InvalidField
from fastvideo.requests.draft import RequestDraft
from fastvideo.requests.types import (
    ActionPart,
    AudioPart,
    ImagePart,
    InputPart,
    LatentPart,
    OutputSpec,
    RequestKind,
    SamplingOverrides,
    TextPart,
    VideoPart,
)
from fastvideo.rpc.names import check_name

_PARTS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "text": TextPart,
        "image": ImagePart,
        "video": VideoPart,
        "audio": AudioPart,
        "action": ActionPart,
        "latent": LatentPart,
    }
)


def draft_of(message: gateway_pb2.SubmitRequestRequest) -> RequestDraft:
    """What a submit asks for. Raises InvalidField for what is not a draft at all."""
    for field in ("model_id", "program_id", "session_id", "required_weights_version"):
        check_name(field, getattr(message, field))
    sampling = SamplingOverrides()
    if message.HasField("sampling"):
        sampling = wire.from_proto(SamplingOverrides, message.sampling)
    return RequestDraft(
        model_id=message.model_id,
        inputs=tuple(_part(i, part) for i, part in enumerate(message.inputs)),
        kind=wire.enum_from_proto(
            RequestKind, request_pb2.RequestKind.DESCRIPTOR, message.kind, "kind"
        ),
        program_id=message.program_id,
        sampling=sampling,
        outputs=wire.from_proto(OutputSpec, message.outputs)
        if message.HasField("outputs")
        else None,
        session_id=message.session_id,
        priority=message.priority,
        deadline=_deadline(message.deadline) if message.HasField("deadline") else None,
        required_weights_version=message.required_weights_version,
    )


def _part(index: int, message: request_pb2.InputPart) -> InputPart:
    chosen = message.WhichOneof("part")
    if chosen is None:
        allowed = f"one of: {', '.join(_PARTS)}"
        raise InvalidField(f"inputs[{index}]", None, allowed, reason="UNKNOWN_PART")
    if chosen == "text" and message.text.segments:
        allowed = "left out: the service says what a session joined to a text"
        raise InvalidField(f"inputs[{index}].text.segments", "given", allowed)
    part: InputPart = wire.from_proto(_PARTS[chosen], getattr(message, chosen))
    return part


def _deadline(stamp: Timestamp) -> datetime:
    try:
        return stamp.ToDatetime(tzinfo=UTC)
    except ValueError as error:
        raise InvalidField("deadline", stamp.seconds, "a time of the years 1 to 9999") from error
