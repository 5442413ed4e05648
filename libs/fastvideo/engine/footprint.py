"""How many bytes a value keeps alive."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef

# States nest a few levels at most; deeper ones are a mistake, not a reason to recurse on.
_DEPTH_MAX: Final = 8
# Common parts of states that hold no storage: this runs at every step.
_EMPTY: Final = frozenset({str, int, float, bool, type(None), RequestSpec, LoopRef})

Storages = Mapping[int, int]
"""Address to size."""


def storages(value: Any) -> dict[int, int]:
    """The storages inside a value, each once: of tensors, arrays and byte strings."""
    return dict(_storages(value, 0))


def resident_bytes(value: Any, excluding: Storages | None = None) -> int:
    """Bytes of the storages inside a value, without those that are somebody else's."""
    others = excluding or {}
    return sum(size for key, size in storages(value).items() if key not in others)


def _storages(value: Any, depth: int) -> Iterator[tuple[int, int]]:
    """Address and size of each storage."""
    if type(value) in _EMPTY:
        return
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        yield storage.data_ptr(), storage.nbytes()
    elif isinstance(value, np.ndarray):
        yield value.__array_interface__["data"][0], value.nbytes
    elif isinstance(value, (bytes, bytearray)):
        yield id(value), len(value)
    elif depth < _DEPTH_MAX:
        for inner in _parts(value):
            yield from _storages(inner, depth + 1)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        yield from value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield getattr(value, field.name)
    elif isinstance(value, Mapping):
        yield from value.values()
