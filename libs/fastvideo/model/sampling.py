"""Sampling parameters of a request: a card's bounds, and its defaults for what is left out."""

import math
from dataclasses import dataclass, fields

from fastvideo.errors import InvalidField
from fastvideo.model.specs import ModelSpec, ParameterSpec
from fastvideo.requests.types import SamplingOverrides, SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSampling:
    """Parameters with nothing left to default, and the names of those that took a default."""

    params: SamplingParams
    defaulted: tuple[str, ...]


def resolve_sampling(
    card: ModelSpec, overrides: SamplingOverrides, *, random_seed: int
) -> ResolvedSampling:
    """Check what a client gave and fill in what it left out.

    `random_seed` is used when no seed is given; it is folded into the card's range.
    Raises InvalidField for the first value that the card does not allow.
    """
    values: dict[str, int | float] = {}
    defaulted = []
    for field in fields(SamplingOverrides):
        bounds = card.sampling[field.name]
        given = getattr(overrides, field.name)
        if given is None:
            defaulted.append(field.name)
            values[field.name] = _default(field.name, bounds, random_seed)
        else:
            values[field.name] = check_parameter(field.name, given, bounds)
    params = SamplingParams(**values)  # type: ignore[arg-type]
    return ResolvedSampling(params=params, defaulted=tuple(defaulted))


def check_parameter(name: str, value: int | float, bounds: ParameterSpec) -> int | float:
    """The value itself.

    Raises InvalidField naming what is allowed when the value is outside the bounds.
    """
    sound = math.isfinite(value) and bounds.minimum <= value <= bounds.maximum
    if sound and bounds.multiple_of:
        sound = (value - bounds.offset) % bounds.multiple_of == 0
    if not sound:
        raise InvalidField(name, value, describe_bounds(bounds))
    return value


def describe_bounds(bounds: ParameterSpec) -> str:
    """The bounds as a sentence for people, such as "16 to 256, a multiple of 16"."""
    allowed = f"{bounds.minimum:.16g} to {bounds.maximum:.16g}"
    if bounds.multiple_of > 1:
        allowed += f", a multiple of {bounds.multiple_of:g}"
        if bounds.offset:
            allowed += f" plus {bounds.offset:g}"
    elif bounds.multiple_of == 1:
        allowed += ", whole numbers"
    return allowed


def _default(name: str, bounds: ParameterSpec, random_seed: int) -> int | float:
    if name == "seed":
        span = int(bounds.maximum) - int(bounds.minimum) + 1
        return int(bounds.minimum) + random_seed % span
    return int(bounds.default_value) if bounds.multiple_of else bounds.default_value
