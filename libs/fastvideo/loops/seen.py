"""What the contract suite of loops sees: every part of a value, and what runs meanwhile."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from fastvideo.loops.state_encoding import tensor_digest


def fingerprint(value: object) -> str:
    """A digest of everything inside a value: fields, items, tensors' bytes."""
    digest = hashlib.sha256()
    for part in _parts(value):
        digest.update(part)
        digest.update(b"\x00")
    return digest.hexdigest()


def _parts(value: object) -> Iterator[bytes]:
    yield type(value).__name__.encode()
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype}{tuple(value.shape)}{tensor_digest(value)}".encode()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield field.name.encode()
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield repr(key).encode()
            yield from _parts(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _parts(item)
    else:
        yield repr(value).encode()


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts modules that run and tensor operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.modules = 0
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def watching() -> Iterator[Watch]:
    """Count inside of the block."""
    watch = Watch()

    def count(module: torch.nn.Module, inputs: Any) -> None:
        watch.modules += 1

    handle = register_module_forward_pre_hook(count)
    try:
        with watch:
            yield watch
    finally:
        handle.remove()
