"""Whether a loop's state and steps are what its schema declares: see `model.state_schemas`."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from fastvideo.loops.contract import LoopKernel, StateBase
from fastvideo.loops.snapshot_format import decode
from fastvideo.loops.snapshots import save_state
from fastvideo.model.state_schemas import ITEMS, StateSchema, check_declared

OUTPUT: Final = "output"
"""The name of a step's output that is a tensor and nothing else."""


def check_state(kernel: LoopKernel[Any, Any], schema: StateSchema, state: StateBase) -> None:
    """Check what of a state is saved. ContractViolation names a tensor that is not as declared."""
    saved = decode(save_state(kernel, state)).parts
    subject = kernel.spec.state_schema
    check_declared(subject, "the state", schema.state, tensors_of("", saved))


def check_step(kernel: LoopKernel[Any, Any], schema: StateSchema, output: object) -> None:
    """Check what a step gave. ContractViolation names a tensor that is not as declared."""
    name = OUTPUT if isinstance(output, torch.Tensor) else ""
    subject = kernel.spec.state_schema
    check_declared(subject, "a step", schema.step, tensors_of(name, output))


def tensors_of(name: str, value: object) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors inside a value by their paths: fields and keys by name, items as `[]`."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_of(_under(name, field.name), getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_of(_under(name, str(key)), item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_of(f"{name}{ITEMS}", item)


def _under(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part
