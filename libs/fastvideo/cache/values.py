"""What a cached value is, in a digest: the same for equal values in every process."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from fastvideo.loops.state_encoding import tensor_digest
from fastvideo.model.canonical import canonical_digest


def value_digest(value: Any) -> str:
    """SHA-256 of a tensor's elements or of bytes, hexadecimal; of tensors by name together.

    Empty for values of other kinds, which have no bytes of their own, such as graphs.
    """
    if isinstance(value, torch.Tensor):
        return tensor_digest(value)
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, Mapping):
        return canonical_digest({name: value_digest(part) for name, part in value.items()})
    return ""
