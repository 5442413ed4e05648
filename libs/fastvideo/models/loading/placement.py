"""Where a component's parameters lie and in which dtype, by the card's policies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch

from fastvideo.errors import InvalidField
from fastvideo.model.specs import ComponentSpec

_DTYPES: Final[Mapping[str, torch.dtype]] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_DEFAULT_DTYPE: Final = "float32"
_ON_WORKER_DEVICE: Final = ("", "device")
_ON_HOST: Final = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The dtype that parameters are run in, and the device that they lie on."""

    dtype: torch.dtype
    device: torch.device


def placement_of(component: ComponentSpec, device: torch.device) -> Placement:
    """What the card says for a worker that computes on `device`.

    Raises InvalidField naming the field and the allowed values. A module runs in the dtype of
    its parameters: a `compute_dtype` that differs is refused, not passed over.
    """
    key = f"components.{component.component_id}"
    policy = component.precision_policy
    dtype = policy.param_dtype or _DEFAULT_DTYPE
    if dtype not in _DTYPES:
        raise InvalidField(f"{key}.precision_policy.param_dtype", dtype, ", ".join(_DTYPES))
    if policy.compute_dtype not in ("", dtype):
        raise InvalidField(f"{key}.precision_policy.compute_dtype", policy.compute_dtype, dtype)
    if component.placement_policy not in (*_ON_WORKER_DEVICE, _ON_HOST):
        raise InvalidField(
            f"{key}.placement_policy",
            component.placement_policy,
            f"device, the worker's and the default; {_ON_HOST}",
        )
    on_host = component.placement_policy == _ON_HOST
    return Placement(dtype=_DTYPES[dtype], device=torch.device("cpu") if on_host else device)
