"""The exact bytes of a loop's state, for its digest."""

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache

import torch

from fastvideo.model.canonical import canonical_bytes


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The tensor's elements in row-major order, as they lie in memory."""
    flat = tensor.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def tensor_digest(tensor: torch.Tensor) -> str:
    """SHA-256 of the tensor's bytes, hexadecimal."""
    return hashlib.sha256(tensor_bytes(tensor)).hexdigest()


def encode_state(
    header: Mapping[str, object], tensors: Iterable[torch.Tensor | str | None]
) -> bytes:
    """A header of scalars, then each tensor's dtype, shape and bytes; None and marks too.

    The request and the attempt are no part of it: equal work has equal bytes.
    """
    parts = [canonical_bytes(header)]
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor):
            parts.append(_form(tensor.dtype, tensor.shape))
            parts.append(tensor_bytes(tensor))
        else:
            parts.append(_mark(tensor))
    return b"\n".join(parts)


# Both are the same few at every step.
@lru_cache(maxsize=1024)
def _form(dtype: torch.dtype, shape: torch.Size) -> bytes:
    return canonical_bytes({"dtype": str(dtype), "shape": list(shape)})


@lru_cache(maxsize=64)
def _mark(mark: str | None) -> bytes:
    return canonical_bytes({"mark": mark})
