"""Numbers as callers write them: as numbers, or as text, as forms and OpenAI's `seconds` do."""

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

INT32_MAX: Final = 2**31 - 1
SEED_MAX: Final = 2**53 - 1
"""The largest whole number that every reader of JSON has."""

# No more digits than a number of 64 bits has; Python reads more kinds of digits than these.
_WHOLE: Final = r"[+-]?[0-9]{1,19}"
_REAL: Final = r"[+-]?[0-9]{1,19}(\.[0-9]{0,19})?([eE][+-]?[0-9]{1,3})?"


def real(value: Any) -> Any:
    """A number that may have come as text; truth values are no numbers."""
    if isinstance(value, str) and re.fullmatch(_REAL, value):
        return float(value)
    if isinstance(value, bool | str):
        raise ValueError("a number")
    return value


def whole(value: Any) -> Any:
    """A whole number that may have come as text, or as 20.0."""
    if isinstance(value, str) and re.fullmatch(_WHOLE, value):
        return int(value)
    if isinstance(value, bool | str):
        raise ValueError("a whole number")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def whole_schema(least: int, most: int) -> WithJsonSchema:
    """What a document says of a whole number within bounds."""
    return _schema("integer", _WHOLE, minimum=least, maximum=most)


def _schema(kind: str, pattern: str, **bounds: int) -> WithJsonSchema:
    """A number within bounds, or text that is one."""
    either = [{"type": kind, **bounds}, {"type": "string", "pattern": f"^{pattern}$"}]
    return WithJsonSchema({"anyOf": either})


Whole = Annotated[
    int,
    BeforeValidator(whole),
    Field(ge=-INT32_MAX, le=INT32_MAX),
    whole_schema(-INT32_MAX, INT32_MAX),
]
Number = Annotated[
    float, BeforeValidator(real), Field(allow_inf_nan=False), _schema("number", _REAL)
]
Seed = Annotated[
    int,
    BeforeValidator(whole),
    Field(ge=0, le=SEED_MAX),
    whole_schema(0, SEED_MAX),
]
