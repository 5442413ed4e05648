"""The exact bytes of a loop's state, for its digest."""

import hashlib
from collections.abc import Iterable, Mapping

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
            parts.append(canonical_bytes({"dtype": str(tensor.dtype), "shape": list(tensor.shape)}))
            parts.append(tensor_bytes(tensor))
        else:
            parts.append(canonical_bytes({"mark": tensor}))
    return b"\n".join(parts)
