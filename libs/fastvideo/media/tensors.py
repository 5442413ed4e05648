"""Named tensors as safetensors bytes, for artifacts and for transfers."""

from collections.abc import Mapping

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from fastvideo.errors import InvalidField


def encode_tensors(
    tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None
) -> bytes:
    """The tensors in safetensors form, on the CPU and contiguous, with text metadata."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(plain, dict(metadata) if metadata else None)


def decode_tensors(data: bytes) -> dict[str, torch.Tensor]:
    """The tensors by name.

    Raises InvalidField when the bytes are not in safetensors form.
    """
    try:
        return load(data)
    except SafetensorError as error:
        raise InvalidField("payload", data[:16], "safetensors bytes") from error
