"""Parameters and bodies of callers, checked before anything is looked up."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from fastvideo.errors import InvalidField

JSON_TYPE: Final = "application/json"

M = TypeVar("M", bound=BaseModel)


class Given(BaseModel):
    """What a caller gives; a name that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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


async def read_body(request: Request, model: type[M]) -> M:
    """The JSON body of a request. Raises InvalidField naming the field.

    Only JSON is taken, which a page of another origin cannot send without being asked.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON_TYPE:
        raise InvalidField("Content-Type", content_type, JSON_TYPE)
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        raise _named(error, model) from error


def validated(fields: Mapping[str, Any], model: type[M]) -> M:
    """Fields, such as those of a form, as a model. Raises InvalidField naming the field."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise _named(error, model) from error


def _named(error: ValidationError, model: type[BaseModel]) -> InvalidField:
    first = error.errors(include_url=False, include_context=False)[0]
    name = ".".join(map(str, first["loc"])) or "body"
    if first["type"] == "extra_forbidden":
        return InvalidField(name, first["input"], f"one of {', '.join(model.model_fields)}")
    if first["type"] == "missing":
        return InvalidField(name, "", "a value", reason="FIELD_REQUIRED")
    return InvalidField(name, first.get("input"), first["msg"].removeprefix("Value error, "))
