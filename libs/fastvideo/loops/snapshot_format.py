"""The bytes of a snapshot: a typed header and tensors, in safetensors form.

The header is one JSON object in the file's metadata: the format's version, what is saved, and a
tree of plain data in which each tensor is a reference. Tensors keep their dtype, shape, strides
and kind of device. Nothing is pickled; reading runs no code of the file's.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from fastvideo.errors import ContractViolation, FailedPrecondition
from fastvideo.loops.contract import Values

FORMAT: Final = 1
"""The version of this encoding."""

_METADATA: Final = "fastvideo"
_TENSOR: Final = "$tensor"
_HEADER_BYTES_MAX: Final = 16 << 20
_DEPTH_MAX: Final = 16


class SnapshotMismatch(FailedPrecondition):
    """A snapshot is not one of this loop, this schema or these weights, or it is damaged."""

    default_reason: ClassVar[str] = "SNAPSHOT_MISMATCH"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a snapshot holds."""

    # "state" or "outputs".
    kind: str
    loop_id: str
    # The loop's state schema.
    schema: str
    # The state's version.
    version: int
    # By name: tensors and plain data, and tuples and mappings of them.
    parts: Values
    format: int = FORMAT


def encode(saved: Saved) -> bytes:
    """A snapshot's bytes; equal snapshots have equal bytes.

    Raises ContractViolation for a part that is neither a tensor nor plain data.
    """
    tensors = _Tensors()
    header = {
        "format": saved.format,
        "kind": saved.kind,
        "loop_id": saved.loop_id,
        "schema": saved.schema,
        "version": saved.version,
        "parts": _tree(saved.parts, tensors, 0),
        "tensors": tensors.about,
    }
    return save(tensors.stored, {_METADATA: json.dumps(header)})


def decode(data: bytes) -> Saved:
    """What a snapshot's bytes hold, in memory of its own.

    Raises SnapshotMismatch for bytes that are no snapshot, a format that is not known here, and
    tensors that are not what the header says.
    """
    header = _header(data)
    try:
        stored = load(data)
    except (SafetensorError, KeyError) as error:
        raise SnapshotMismatch("the snapshot is damaged", subject="tensors") from error
    try:
        about = header["tensors"]
        if sorted(about) != sorted(stored):
            raise SnapshotMismatch("the snapshot lacks tensors of its header", subject="tensors")
        tensors = {name: _placed(name, stored[name], about[name]) for name in stored}
        return Saved(
            kind=header["kind"],
            loop_id=header["loop_id"],
            schema=header["schema"],
            version=header["version"],
            parts=_grown(header["parts"], tensors),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise SnapshotMismatch("the snapshot's header is damaged", subject="header") from error


@dataclass(slots=True)
class _Tensors:
    """Tensors on their way into a file, each storage once."""

    stored: dict[str, torch.Tensor] = field(default_factory=dict)
    about: dict[str, dict[str, Any]] = field(default_factory=dict)
    _names: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def add(self, tensor: torch.Tensor) -> str:
        shape, strides = tuple(tensor.shape), tensor.stride()
        key = (tensor.device, tensor.data_ptr(), tensor.dtype, shape, strides)
        if tensor.numel() and key in self._names:
            return self._names[key]
        name = f"t{len(self.stored)}"
        # A copy: the file's library refuses tensors that share a storage.
        self.stored[name] = tensor.detach().cpu().contiguous().clone()
        self.about[name] = {
            "dtype": _dtype(tensor),
            "shape": list(shape),
            "strides": list(strides) if _is_dense(tensor) else None,
            "device": tensor.device.type,
        }
        self._names[key] = name
        return name


def _tree(value: Any, tensors: _Tensors, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise ContractViolation(f"a state nests deeper than {_DEPTH_MAX} levels")
    if isinstance(value, torch.Tensor):
        return {_TENSOR: tensors.add(value)}
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) and key != _TENSOR for key in value):
            raise ContractViolation(f"a mapping of a state has keys that cannot be: {list(value)}")
        return {key: _tree(item, tensors, depth + 1) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_tree(item, tensors, depth + 1) for item in value]
    raise ContractViolation(f"a {type(value).__name__} of a state cannot be saved")


def _grown(tree: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(tree, list):
        return tuple(_grown(item, tensors) for item in tree)
    if isinstance(tree, dict):
        if tree.keys() == {_TENSOR}:
            return tensors[tree[_TENSOR]]
        return {key: _grown(item, tensors) for key, item in tree.items()}
    return tree


def _header(data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, _HEADER_BYTES_MAX):
        raise SnapshotMismatch("the bytes are no snapshot", subject="header")
    try:
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_METADATA])
        known = header["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise SnapshotMismatch("the bytes are no snapshot", subject="header") from error
    if known != FORMAT:
        raise SnapshotMismatch(
            f"the snapshot has format {known!r}; this worker reads {FORMAT}",
            subject="format",
            attributes={"found": str(known), "allowed": str(FORMAT)},
        )
    assert isinstance(header, dict)
    return header


def _placed(name: str, tensor: torch.Tensor, about: Mapping[str, Any]) -> torch.Tensor:
    """The tensor with the layout that it had, on the kind of device that it was on."""
    found = (_dtype(tensor), list(tensor.shape))
    if found != (about["dtype"], about["shape"]):
        raise SnapshotMismatch(
            f"tensor {name} is {found[0]} {found[1]}; its header says {about['dtype']} "
            f"{about['shape']}",
            subject=f"tensors.{name}",
        )
    here = about["device"] == "cpu" or (about["device"] == "cuda" and torch.cuda.is_available())
    device = about["device"] if here else "cpu"
    strides = about["strides"]
    if strides is None:
        return tensor.clone().to(device)
    placed = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=device)
    return placed.copy_(tensor)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the tensor's elements fill a block of memory without gaps and overlaps."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
