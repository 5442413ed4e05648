"""What loops keep between steps and what a step gives, declared by name and version.

A loop of a card names its state's schema, such as "wan.denoise.v1"; a family declares it in
`state_schemas.yaml`:

    wan.denoise.v1:
      state:
        - {name: latents, dims: ["1", C, T, H, W], dtype: float32}
        - {name: "sampler.model_outputs[]", dims: ["1", C, T, H, W], dtype: float32}
      step:
        - {name: velocity, dims: ["1", C, T, H, W], dtype: float32}

A state is what is saved at a boundary (`fastvideo.loops.snapshots`), a step what `run_step` gives
for one unit. Names are paths in them; `[]` stands for the items of a sequence, each by itself.
What is declared may be absent, since much of a state is there only after a step; what is there is
declared. A change of either is another version, so that a snapshot is never read as what it is
not.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fastvideo.errors import ContractViolation
from fastvideo.model.documents import InvalidDocument, parse, read_document
from fastvideo.model.specs import ModelSpec
from fastvideo.model.tensors import TensorLike, TensorSchema, check_tensors

FILE: Final = "state_schemas.yaml"
ITEMS: Final = "[]"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSchema:
    """The tensors of a loop's state and of what a step of it gives."""

    state: tuple[TensorSchema, ...] = ()
    step: tuple[TensorSchema, ...] = ()


StateSchemas = Mapping[str, StateSchema]
"""Schemas by name and version."""

SHARED: Final[StateSchemas] = {
    # The worker's own loop: files that were written are no tensors.
    "artifact_write.v1": StateSchema(),
}


def load_state_schemas(path: Path) -> dict[str, StateSchema]:
    """The schemas of a family, and those that every family has; a family may have no file.

    Raises InvalidDocument naming the file and each key that is at fault.
    """
    if not path.is_file():
        return dict(SHARED)
    data = read_document(path)
    schemas = {name: parse(StateSchema, one, f"{path.name}: {name}") for name, one in data.items()}
    problems = schema_problems(schemas)
    if problems:
        raise InvalidDocument(path.name, problems)
    return {**SHARED, **schemas}


def schema_problems(schemas: StateSchemas) -> dict[str, str]:
    """What is wrong with schemas, by key."""
    return {
        f"{name}.{part}.{index}.{key}": fault
        for name, schema in schemas.items()
        for part, tensors in (("state", schema.state), ("step", schema.step))
        for index, tensor in enumerate(tensors)
        for key, fault in _tensor_problems(tensor, tensors[:index])
    }


def card_state_problems(card: ModelSpec, schemas: StateSchemas) -> dict[str, str]:
    """The loops of a card whose state's schema nobody declares, by key."""
    known = ", ".join(sorted(schemas))
    return {
        f"loops.{name}.state_schema": f"{loop.state_schema!r} is declared nowhere; known: {known}"
        for name, loop in card.loops.items()
        if loop.state_schema and loop.state_schema not in schemas
    }


def states_of(card: ModelSpec, schemas: StateSchemas) -> dict[str, StateSchema]:
    """The schemas of a card's loops, by name."""
    names = {loop.state_schema: None for loop in card.loops.values()}
    return {name: schemas[name] for name in names if name in schemas}


def check_declared(
    subject: str,
    part: str,
    declared: Iterable[TensorSchema],
    found: Iterable[tuple[str, TensorLike]],
) -> None:
    """Check the tensors that were found, by path, against what is declared.

    A dimension is a number or a name; a name means one size throughout, except in the items of a
    sequence, where it means one within each. Raises ContractViolation (UNDECLARED_STATE for a
    tensor that nobody declared, TENSOR_MISMATCH for one of another form).
    """
    schemas = {schema.name: schema for schema in declared}
    single: dict[str, TensorLike] = {}
    for name, tensor in found:
        schema = schemas.get(name)
        if schema is None:
            raise ContractViolation(
                f"{subject}: {part} has {name}, which its schema does not declare",
                reason="UNDECLARED_STATE",
                subject=subject,
                attributes={"tensor": name, "allowed": ", ".join(schemas) or "none"},
            )
        if ITEMS in name:
            check_tensors(subject, [schema], {name: tensor}, {})
        else:
            single[name] = tensor
    check_tensors(subject, [schemas[name] for name in single], single, {})


def _tensor_problems(
    tensor: TensorSchema, before: tuple[TensorSchema, ...]
) -> Iterator[tuple[str, str]]:
    if not tensor.name:
        yield "name", "is empty"
    if tensor.name in {other.name for other in before}:
        yield "name", f"{tensor.name!r} is there twice"
    if not tensor.dtype:
        yield "dtype", "is empty"
