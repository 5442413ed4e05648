"""A submit as a message; what the wire cannot carry is refused before it is sent."""

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, TypedDict

from fastvideo import wire
from fastvideo.api.common.v1 import request_pb2
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.errors import InvalidField
from fastvideo.requests.inputs import IMAGE, IMAGE_TO_VIDEO
from fastvideo.requests.types import OutputSpec, SamplingOverrides

# Where `submit_message` puts the texts and the image.
_ARGUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {"inputs[0].text.text": "prompt", "inputs[1].text.text": "negative_prompt"}
    | {f"inputs[{index}].image.artifact_id": "image" for index in (1, 2)}
)


class NamedSampling(TypedDict, total=False):
    """The fields of `SamplingOverrides` as arguments of `submit`."""

    width: int
    height: int
    num_frames: int
    fps: int
    steps: int
    guidance_scale: float
    flow_shift: float
    seed: int
    sampler: str
    noise_level: float


def submit_message(
    *,
    prompt: str,
    negative_prompt: str | None,
    image_id: str = "",
    model_id: str,
    sampling: SamplingOverrides,
    outputs: OutputSpec,
    session_id: str,
    priority: int,
    deadline: datetime | None,
    idempotency_key: str,
) -> gateway_pb2.SubmitRequestRequest:
    """The message; `image_id` is the artifact that the video starts from.

    Raises InvalidField for text that is not Unicode and numbers out of range.
    """
    inputs = [_text_part("prompt", prompt)]
    if negative_prompt is not None:
        inputs.append(_text_part("negative_prompt", negative_prompt))
    if image_id:
        image = request_pb2.ImagePart(role=IMAGE, artifact_id=image_id)
        inputs.append(request_pb2.InputPart(image=image))
    request = gateway_pb2.SubmitRequestRequest(
        idempotency_key=idempotency_key,
        kind=request_pb2.REQUEST_KIND_GENERATION,
        program_id=IMAGE_TO_VIDEO if image_id else "",
        inputs=inputs,
        outputs=wire.to_proto(outputs),
    )
    _set(request, "model_id", model_id, "model_id")
    _set(request, "session_id", session_id, "session_id")
    _set(request, "priority", priority, "priority")
    for field in dataclasses.fields(sampling):
        value = getattr(sampling, field.name)
        if value is not None:
            _set(request.sampling, field.name, value, f"sampling.{field.name}")
    if deadline is not None:
        request.deadline.FromDatetime(deadline)
    return request


@contextmanager
def named_as_given() -> Iterator[None]:
    """Let a refusal name an input by the argument that gave it, not by its place on the wire."""
    with renamed(_ARGUMENTS):
        yield


@contextmanager
def renamed(arguments: Mapping[str, str]) -> Iterator[None]:
    """Let a refusal name a field as its caller knows it: from the wire's path to that name."""
    try:
        yield
    except InvalidField as error:
        path, argument = error.subject, arguments.get(error.subject)
        if argument is not None:
            error.message = error.message.replace(path, argument)
            error.args = (error.message,)
            error.subject = error.field = argument
        raise


def _text_part(role: str, text: str) -> request_pb2.InputPart:
    part = request_pb2.TextPart(role=role)
    _set(part, "text", text, role)
    return request_pb2.InputPart(text=part)


def _set(message: Any, name: str, value: Any, subject: str) -> None:
    try:
        setattr(message, name, value)
    except (TypeError, ValueError) as error:
        raise InvalidField(subject, value, _allowed(message, name)) from error


def set_field(message: Any, name: str, value: Any) -> None:
    """Set a field of a message that has an argument's name. Raises InvalidField naming it."""
    _set(message, name, value, name)


def _allowed(message: Any, name: str) -> str:
    """What the field's type on the wire can hold, in words."""
    field = message.DESCRIPTOR.fields_by_name[name]
    return {
        field.TYPE_STRING: "Unicode text",
        field.TYPE_INT32: "a whole number of 32 bits",
        field.TYPE_UINT32: "a whole number from 0 to 4,294,967,295",
        field.TYPE_INT64: "a whole number of 64 bits",
        field.TYPE_DOUBLE: "a number",
    }[field.type]
