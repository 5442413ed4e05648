"""Whether what a step gave is made of numbers, and which component gave what is not.

A kernel says which field of its outputs comes from which component:

    components_of = {"velocity": "transformer", "latents": "scheduler"}

The fields are in the order in which they are made, each of the one before it, so numbers that are
none show in the last one: only then are the others looked at, and the first that went wrong is
named. A kernel that says nothing has its `latents` watched.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

import torch

_WATCHED: Final[Mapping[str, str]] = MappingProxyType({"latents": ""})


class NamesComponents(Protocol):
    """A loop kernel that says which component each field of its outputs comes from."""

    components_of: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """A tensor with elements that are no numbers."""

    component: str
    field: str
    nans: int
    infinities: int
    elements: int


def find_non_finite(kernel: object, output: object) -> NonFinite | None:
    """The first watched tensor of a unit's output that is not finite."""
    # Not by isinstance, which takes longer than all else here.
    watched: Mapping[str, str] = getattr(kernel, "components_of", _WATCHED)
    if _is_finite(_value(output, tuple(watched)[-1])):
        return None
    for field, component in watched.items():
        value = _value(output, field)
        if value is not None and not _is_finite(value):
            return NonFinite(
                component=component,
                field=field,
                nans=int(torch.isnan(value).sum()),
                infinities=int(torch.isinf(value).sum()),
                elements=value.numel(),
            )
    return None


def _value(output: Any, field: str) -> torch.Tensor | None:
    # An output that is a tensor itself is of the one field that is watched.
    value = output if isinstance(output, torch.Tensor) else getattr(output, field, None)
    if isinstance(value, float):
        return torch.tensor(value)
    return value if isinstance(value, torch.Tensor) else None


def _is_finite(tensor: torch.Tensor | None) -> bool:
    if tensor is None or not tensor.is_floating_point():
        return True
    # A sum is as finite as its parts, or overflows: then all of them are looked at.
    return math.isfinite(float(tensor.sum())) or bool(torch.isfinite(tensor).all())
