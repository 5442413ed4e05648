"""Named tensors as safetensors bytes, for artifacts and for transfers."""

import json
from collections.abc import Mapping

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from fastvideo.errors import InvalidField


def encode_tensors(
    tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None
) -> bytes:
    """The tensors in safetensors form, on the CPU and contiguous.

    Metadata is one JSON object under the key "fastvideo": the library writes several keys in
    an order of chance, and the same tensors must give the same bytes.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    about = {"fastvideo": json.dumps(dict(metadata), sort_keys=True)} if metadata else None
    return save(plain, about)


def decode_tensors(data: bytes) -> dict[str, torch.Tensor]:
    """The tensors by name.

    Raises InvalidField when the bytes are not in safetensors form.
    """
    try:
        return load(data)
    except SafetensorError as error:
        raise InvalidField("payload", data[:16], "safetensors bytes") from error
