"""Saving a loop's state at a boundary, and going on from it elsewhere with equal bits.

    data = save_state(kernel, state)
    state = load_state(kernel, decode(data), loop, request, instance)

The request is not saved: whoever goes on has it. A kernel whose state is made of tensors and
plain data needs to do nothing: every field is saved and read by its annotation. One whose state
holds more, such as a guidance policy, a schedule or what a machine has measured, says itself
what is saved and how the rest is made again: see `ResumableKernel`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, Protocol, TypeVar, get_type_hints, runtime_checkable

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError

from fastvideo.errors import InvalidField
from fastvideo.loops.contract import LoopKernel, StateBase, Values
from fastvideo.loops.snapshot_format import Saved, SnapshotMismatch, encode
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef

STATE: Final = "state"

State = TypeVar("State", bound=StateBase)
Kernel = LoopKernel[Any, Any]

_NOT_SAVED: Final = tuple(field.name for field in dataclasses.fields(StateBase))


@runtime_checkable
class ResumableKernel(Protocol):
    """A loop kernel that says itself what of its state is saved."""

    def save_state(self, state: Any) -> Values:
        """What cannot be made again: tensors, plain data, and tuples and mappings of them."""
        ...

    def load_state(self, loop: LoopRef, request: RequestSpec, saved: Values, instance: Any) -> Any:
        """The state that was saved, at any version; it runs no step.

        Raises SnapshotMismatch for what cannot be of this loop.
        """
        ...


def save_state(kernel: Kernel, state: StateBase) -> bytes:
    """The bytes of a state. Raises ContractViolation for what cannot be saved."""
    if isinstance(kernel, ResumableKernel):
        parts = kernel.save_state(state)
    else:
        names = [field.name for field in dataclasses.fields(state)]
        parts = fields_of(state, [name for name in names if name not in _NOT_SAVED])
    return encode(
        Saved(
            kind=STATE,
            loop_id=kernel.spec.loop_id,
            schema=kernel.spec.state_schema,
            version=state.version,
            parts=parts,
        )
    )


def load_state(
    kernel: Kernel, saved: Saved, loop: LoopRef, request: RequestSpec, instance: Any
) -> Any:
    """The state of a snapshot, for a run of the same request.

    Raises SnapshotMismatch for a snapshot of another loop or schema, and for fields of another
    type, dtype or shape.
    """
    for name, found, wanted in (
        ("kind", saved.kind, STATE),
        ("loop_id", saved.loop_id, kernel.spec.loop_id),
        ("schema", saved.schema, kernel.spec.state_schema),
    ):
        if found != wanted:
            raise SnapshotMismatch(
                f"the snapshot's {name} is {found!r}; this loop's is {wanted!r}",
                subject=name,
                attributes={"found": found, "allowed": wanted},
            )
    try:
        state = _load(kernel, saved, loop, request, instance)
    except InvalidField as error:
        # What a fresh loop would not take as its input.
        raise SnapshotMismatch(error.message, subject=error.field) from error
    return dataclasses.replace(state, version=saved.version)


def _load(kernel: Kernel, saved: Saved, loop: LoopRef, request: RequestSpec, instance: Any) -> Any:
    if isinstance(kernel, ResumableKernel):
        return kernel.load_state(loop, request, saved.parts, instance)
    state_type = get_type_hints(kernel.init_state)["return"]
    parts = typed_fields(state_type, saved.parts, _own_fields(state_type))
    return state_type(loop=loop, request=request, **parts)


def fields_of(state: Any, names: Sequence[str]) -> dict[str, Any]:
    """Some fields of a state by name."""
    return {name: getattr(state, name) for name in names}


def typed_fields(state_type: Any, saved: Values, names: Sequence[str]) -> dict[str, Any]:
    """Saved parts as the fields of a state's type say; nothing more and nothing less.

    Raises SnapshotMismatch naming the field.
    """
    if set(saved) != set(names):
        raise SnapshotMismatch(
            f"the snapshot has the fields {sorted(saved)}, not {sorted(names)}", subject="fields"
        )
    fields = {}
    for name in names:
        try:
            fields[name] = _adapter(state_type, name).validate_python({"": saved[name]})[""]
        except ValidationError as error:
            fault = error.errors()[0]
            place = ".".join((name, *(str(part) for part in fault["loc"][1:])))
            raise SnapshotMismatch(f"{place}: {fault['msg']}", subject=place) from error
    return fields


def resumed(fresh: State, fields: Mapping[str, Any]) -> State:
    """A fresh state with what was saved in it.

    Raises SnapshotMismatch when a tensor has another dtype or shape than the fresh one.
    """
    for name, found in fields.items():
        wanted = getattr(fresh, name)
        if isinstance(wanted, torch.Tensor):
            require_like(name, found, wanted)
    return dataclasses.replace(fresh, **fields)


def require_like(name: str, found: Any, wanted: torch.Tensor) -> None:
    """Raise SnapshotMismatch unless a saved tensor has the dtype and the shape of another."""
    if not isinstance(found, torch.Tensor):
        raise SnapshotMismatch(f"{name} is no tensor", subject=name)
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        raise SnapshotMismatch(
            f"{name} is {found.dtype} {list(found.shape)}; this request's is {wanted.dtype} "
            f"{list(wanted.shape)}",
            subject=name,
        )


def require_rank(name: str, found: torch.Tensor, rank: int) -> None:
    """Raise SnapshotMismatch unless a saved tensor has so many dimensions."""
    if found.ndim != rank:
        raise SnapshotMismatch(
            f"{name} has the shape {list(found.shape)}, not {rank} dimensions", subject=name
        )


def _own_fields(state_type: Any) -> list[str]:
    names = [field.name for field in dataclasses.fields(state_type)]
    return [name for name in names if name not in _NOT_SAVED]


@cache
def _adapter(state_type: Any, name: str) -> TypeAdapter[Any]:
    """How a field of a state is read."""
    hint: Any = get_type_hints(state_type)[name]
    # A configuration reaches dataclasses only through a container.
    config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
    fields: Any = dict[str, hint]
    return TypeAdapter(fields, config=config)
