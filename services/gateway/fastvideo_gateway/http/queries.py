"""Parameters and bodies of callers, checked before anything is looked up."""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from fastvideo.errors import InvalidField

JSON_TYPE: Final = "application/json"
JSON_MARKS_MAX: Final = 100_000
"""Commas, colons and brackets of a body: a few megabytes of tiny values become gigabytes."""

M = TypeVar("M", bound=BaseModel)
Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


def _date(value: Any) -> Any:
    """Text that begins with a year; a bare number could be seconds or milliseconds."""
    if isinstance(value, str) and not re.match(r"[0-9]{4}-", value):
        raise ValueError("a date and time with its zone, such as 2026-01-01T00:00:00Z")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_date)]


class Given(BaseModel):
    """What a caller gives; a name that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def read_query(request: Request, model: type[M]) -> M:
    """The query of a URL. Raises InvalidField naming the parameter."""
    pairs = request.query_params.multi_items()
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise InvalidField(name, "given twice", "one value")
    try:
        return model.model_validate(dict(pairs))
    except ValidationError as error:
        raise _named(error, model) from error


def without_query(handle: Handler) -> Handler:
    """Refuse every parameter of a path that takes none."""

    async def handled(request: Request) -> Response:
        read_query(request, Given)
        return await handle(request)

    return handled


async def read_body(request: Request, model: type[M]) -> M:
    """The JSON body of a request. Raises InvalidField naming the field.

    Only JSON is taken, which a page of another origin cannot send without being asked.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON_TYPE:
        raise InvalidField("Content-Type", content_type, JSON_TYPE)
    data = await request.body()
    if sum(data.count(mark) for mark in (b",", b":", b"[", b"{")) > JSON_MARKS_MAX:
        raise InvalidField("body", "too many values", f"at most {JSON_MARKS_MAX} of them")
    try:
        # Text is no number here, as it is in a query.
        read = model.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise _named(error, model) from error
    json.loads(data, object_pairs_hook=_refuse_twins)
    return read


def validated(fields: Mapping[str, Any], model: type[M]) -> M:
    """Fields, such as those of a form, as a model. Raises InvalidField naming the field."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise _named(error, model) from error


def _refuse_twins(pairs: list[tuple[str, Any]]) -> None:
    """Of a name that is given twice nobody knows which one is meant."""
    seen = set()
    for name, _ in pairs:
        if name in seen:
            raise InvalidField(name, "given twice", "one value")
        seen.add(name)


def _named(error: ValidationError, model: type[BaseModel]) -> InvalidField:
    faults = error.errors(include_url=False, include_context=False)
    # What is misspelled is missing, too.
    first = next((one for one in faults if one["type"] == "extra_forbidden"), faults[0])
    name = ".".join(map(str, first["loc"])) or "body"
    if first["type"] == "extra_forbidden":
        return InvalidField.unknown(name, _fields_around(model, first["loc"]))
    if first["type"] == "missing":
        return InvalidField.retold(
            f"{name} is missing",
            field=name,
            attributes={"allowed": "a value"},
            reason="FIELD_REQUIRED",
        )
    if first["type"] == "json_invalid":
        return InvalidField(name, "not JSON", first["msg"], reason="JSON_MALFORMED")
    allowed = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return InvalidField(name, first.get("input"), allowed)


def _fields_around(model: type[BaseModel], place: tuple[int | str, ...]) -> Iterable[str]:
    """The fields of the model, within a model, that a place is in."""
    for part in place[:-1]:
        field = model.model_fields.get(str(part))
        kinds = (field.annotation, *get_args(field.annotation)) if field is not None else ()
        inner = [one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel)]
        model = inner[0] if inner else model
    return model.model_fields
