"""How many bytes a value keeps alive."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch

# States nest a few levels at most; deeper ones are a mistake, not a reason to recurse on.
_DEPTH_MAX: Final = 8


def resident_bytes(value: Any, excluding: Any = None) -> int:
    """Bytes of the tensors, arrays and byte strings inside a value, each storage once.

    What `excluding` holds too is somebody else's and is not counted.
    """
    others = dict(_storages(excluding, 0))
    held = {key: size for key, size in _storages(value, 0) if key not in others}
    return sum(held.values())


def _storages(value: Any, depth: int) -> Iterator[tuple[int, int]]:
    """Address and size of each storage."""
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
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (tuple, list)):
        yield from value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield getattr(value, field.name)
