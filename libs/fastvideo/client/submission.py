"""What is asked as messages; what the wire cannot carry is refused before it is sent."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, TypedDict, TypeVar, Unpack

from fastvideo import wire
from fastvideo.api.common.v1 import request_pb2
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.errors import FastVideoError, InvalidField
from fastvideo.requests.inputs import IMAGE, IMAGE_TO_VIDEO
from fastvideo.requests.types import OutputSpec, SamplingOverrides

D = TypeVar("D")
E = TypeVar("E", bound=StrEnum)
M = TypeVar("M")

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
        kind=request_pb2.REQUEST_KIND_GENERATION,
        program_id=IMAGE_TO_VIDEO if image_id else "",
        inputs=inputs,
    )
    filled(
        request,
        model_id=model_id,
        session_id=session_id,
        priority=priority,
        idempotency_key=idempotency_key,
    )
    for field in dataclasses.fields(sampling):
        value = getattr(sampling, field.name)
        if value is not None:
            _set(request.sampling, field.name, value, f"sampling.{field.name}")
    if deadline is not None:
        request.deadline.FromDatetime(moment("deadline", deadline))
    if instance("outputs", outputs, OutputSpec).ttl_s is not None:
        _set(request.outputs, "ttl_s", outputs.ttl_s, "outputs.ttl_s")
    with carrying("outputs", outputs):
        wire.fill_proto(outputs, request.outputs)
    return request


def sampled(sampling: SamplingOverrides, named: Mapping[str, Any]) -> SamplingOverrides:
    """Sampling with what was named beside it."""
    return dataclasses.replace(instance("sampling", sampling, SamplingOverrides), **named)


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise InvalidField for the first argument that there is not, with what may be meant."""
    names = tuple(dict.fromkeys(known))
    for name in given:
        if name not in names:
            raise InvalidField.unknown(name, names)


def keywords(*methods: Callable[..., Any]) -> Iterator[str]:
    """What methods take by name."""
    for method in methods:
        for parameter in inspect.signature(method).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY:
                yield parameter.name
            elif parameter.annotation == Unpack[NamedSampling]:
                yield from NamedSampling.__annotations__


def instance(name: str, value: Any, cls: type[D]) -> D:
    """The value of an argument. Raises InvalidField when it is of another class."""
    if not isinstance(value, cls):
        raise InvalidField(name, value, f"a value of type {cls.__name__}")
    return value


def moment(name: str, value: Any) -> datetime:
    """The time of an argument. Raises InvalidField for one without its zone."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidField(name, value, "a datetime with its zone, such as datetime.now(UTC)")
    return value


@contextmanager
def carrying(name: str, value: object) -> Iterator[None]:
    """Let what the wire cannot carry be refused by the name of its argument."""
    try:
        yield
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidField(name, value, f"what can be sent: {error}") from error


def member(name: str, value: Any, cls: type[E]) -> E:
    """The member that an argument says. Raises InvalidField naming all that there are."""
    try:
        return cls(value)
    except ValueError as error:
        raise InvalidField(name, value, ", ".join(cls)) from error


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
    except FastVideoError as error:
        path, argument = error.subject, arguments.get(error.subject)
        if argument is not None:
            error.message = error.message.replace(path, argument)
            error.args = (error.message,)
            error.subject = argument
            if isinstance(error, InvalidField):
                error.field = argument
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


def filled(message: M, **fields: Any) -> M:
    """The message with fields that have arguments' names. Raises InvalidField naming one."""
    for name, value in fields.items():
        _set(message, name, value, name)
    return message


def _allowed(message: Any, name: str) -> str:
    """What the field's type on the wire can hold, in words."""
    field = message.DESCRIPTOR.fields_by_name[name]
    return {
        field.TYPE_STRING: "Unicode text",
        field.TYPE_INT32: "a whole number of 32 bits",
        field.TYPE_UINT32: "a whole number from 0 to 4,294,967,295",
        field.TYPE_INT64: "a whole number of 64 bits",
        field.TYPE_UINT64: "a whole number from 0 on, of 64 bits",
        field.TYPE_DOUBLE: "a number",
    }[field.type]
