"""Counts what runs in a block: modules and tensor operations."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode


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
