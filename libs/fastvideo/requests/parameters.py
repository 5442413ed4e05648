"""One number against what a card allows: taken as it is, or refused with the nearest allowed."""

import math
from typing import Final

from fastvideo.errors import InvalidField
from fastvideo.model.specs import ParameterSpec

# Grids such as 0.1 are not exact in binary; a value this near to a grid point is on it.
_GRID_TOLERANCE: Final = 1e-9


def check_parameter(field: str, value: object, spec: ParameterSpec, *, integral: bool) -> float:
    """The value, if the spec allows it.

    Raises InvalidField, which says the range, the grid and the nearest allowed values.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidField(field, value, allowed_values(spec, integral=integral))
    # Asked of floats alone: an int may be too large to be one.
    if isinstance(value, float) and not (math.isfinite(value) and (not integral or value % 1 == 0)):
        raise InvalidField(field, value, allowed_values(spec, integral=integral))
    if not spec.minimum <= value <= spec.maximum or not _on_grid(value, spec):
        near = " or ".join(_shown(number, integral) for number in nearest_allowed(value, spec))
        allowed = allowed_values(spec, integral=integral)
        raise InvalidField(field, value, f"{allowed}; nearest: {near}")
    return int(value) if integral else float(value)


def allowed_values(spec: ParameterSpec, *, integral: bool) -> str:
    """The allowed values in words, such as "16 to 256, multiples of 16"."""
    bounds = f"{_shown(spec.minimum, integral)} to {_shown(spec.maximum, integral)}"
    if spec.multiple_of and not (integral and spec.multiple_of == 1):
        grid = _shown(spec.multiple_of, integral)
        if spec.offset:
            return f"{bounds}, {_shown(spec.offset, integral)} plus a multiple of {grid}"
        return f"{bounds}, multiples of {grid}"
    return f"{bounds}, whole numbers" if integral else bounds


def nearest_allowed(value: float, spec: ParameterSpec) -> tuple[float, ...]:
    """The allowed values next to a finite number, below first; one at the ends of the range."""
    value = min(max(value, spec.minimum), spec.maximum)
    if not spec.multiple_of:
        return (value,)
    first = math.ceil((spec.minimum - spec.offset) / spec.multiple_of - _GRID_TOLERANCE)
    last = math.floor((spec.maximum - spec.offset) / spec.multiple_of + _GRID_TOLERANCE)
    place = (value - spec.offset) / spec.multiple_of
    below, above = (min(max(k, first), last) for k in (math.floor(place), math.ceil(place)))
    return tuple(spec.offset + k * spec.multiple_of for k in dict.fromkeys((below, above)))


def _on_grid(value: float, spec: ParameterSpec) -> bool:
    if not spec.multiple_of:
        return True
    place = (value - spec.offset) / spec.multiple_of
    return abs(place - round(place)) <= _GRID_TOLERANCE * max(1.0, abs(place))


def _shown(number: float, integral: bool) -> str:
    return str(int(number)) if integral or number == int(number) else f"{number:g}"
