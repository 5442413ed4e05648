"""The declared form of tensors that cross a boundary.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fastvideo.errors import ContractViolation


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSchema:
    """The declared form of one tensor that crosses a boundary."""

    name: str = ""
    # Named dimensions in order, such as "B", "C", "T", "H", "W".
    dims: tuple[str, ...] = ()
    # Such as "float32".
    dtype: str = ""


def check_tensors(
    component_id: str,
    schemas: Sequence[TensorSchema],
    tensors: Mapping[str, "TensorLike"],
    sizes: Mapping[str, int],
) -> None:
    """Check the tensors of one call against their schemas.

    A dimension is a number, a name that `sizes` fixes, or a name that must mean one size
    throughout the call. Raises ContractViolation naming the component and the tensor.
    """
    bound = dict(sizes)
    for schema in schemas:
        tensor = tensors[schema.name]
        dtype = str(tensor.dtype).rpartition(".")[2]
        shape = tuple(tensor.shape)
        if dtype != schema.dtype:
            raise _wrong(component_id, schema, f"is {dtype}", schema.dtype)
        if len(shape) != len(schema.dims):
            raise _wrong(component_id, schema, f"has shape {list(shape)}", _shown(schema))
        for dim, size in zip(schema.dims, shape, strict=True):
            wanted = int(dim) if dim.isdecimal() else bound.setdefault(dim, size)
            if size != wanted:
                raise _wrong(
                    component_id,
                    schema,
                    f"has shape {list(shape)}",
                    f"{_shown(schema)} with {dim} = {wanted}",
                )


class TensorLike(Protocol):
    """What a check needs of a tensor of any library."""

    @property
    def dtype(self) -> object:
        """The element type; its name's last part is compared."""
        ...

    @property
    def shape(self) -> Sequence[int]:
        """The sizes of the dimensions."""
        ...


def _shown(schema: TensorSchema) -> str:
    return f"[{', '.join(schema.dims)}]"


def _wrong(component_id: str, schema: TensorSchema, found: str, wanted: str) -> ContractViolation:
    return ContractViolation(
        f"{component_id}: {schema.name} {found}; allowed: {wanted}",
        reason="TENSOR_MISMATCH",
        subject=component_id,
        attributes={"tensor": schema.name, "allowed": wanted},
    )
