"""The header of a safetensors file: what tensors it holds, read without torch.

Format: https://huggingface.co/docs/safetensors. Eight bytes of header length, little-endian,
a JSON header, then the tensors' bytes without gaps.
"""

import json
import math
from pathlib import Path
from typing import Any, Final

from fastvideo.errors import CheckpointError
from fastvideo.model.specs import TensorEntry

_HEADER_BYTES_MAX: Final = 100_000_000
_DTYPES: Final = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "I16": ("int16", 2),
    "I32": ("int32", 4),
    "I64": ("int64", 8),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "F32": ("float32", 4),
    "F64": ("float64", 8),
}


def read_tensor_table(path: Path) -> tuple[TensorEntry, ...]:
    """The tensors of a safetensors file, by key.

    Raises CheckpointError naming the file, and the key where one is at fault.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _HEADER_BYTES_MAX):
            raise CheckpointError(f"{path} is cut short or no safetensors file", subject=str(path))
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise CheckpointError(f"{path} has a damaged header", subject=str(path)) from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} has a damaged header", subject=str(path))
    header.pop("__metadata__", None)
    entries = [_entry(path, key, header[key]) for key in sorted(header)]
    data_bytes = max((fields["data_offsets"][1] for fields in header.values()), default=0)
    if 8 + length + data_bytes != size:
        raise CheckpointError(
            f"{path} is {size} bytes; its header says {8 + length + data_bytes}", subject=str(path)
        )
    return tuple(entries)


def _entry(path: Path, key: str, fields: Any) -> TensorEntry:
    try:
        dtype, item_bytes = _DTYPES[fields["dtype"]]
        shape = tuple(int(size) for size in fields["shape"])
        start, stop = fields["data_offsets"]
        sound = stop - start == math.prod(shape) * item_bytes
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: tensor {key!r} has a damaged header entry", subject=f"{path}:{key}"
        ) from error
    if not sound:
        raise CheckpointError(
            f"{path}: tensor {key!r} is {stop - start} bytes; {dtype} of {list(shape)} needs "
            f"{math.prod(shape) * item_bytes}",
            subject=f"{path}:{key}",
        )
    return TensorEntry(key=key, shape=shape, dtype=dtype)
