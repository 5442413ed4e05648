"""Stored artifacts that a request names, images and latents, as values of its loops."""

from dataclasses import replace
from typing import Final

import torch

from fastvideo.engine.sink import ArtifactSource
from fastvideo.engine.values import ValueStore
from fastvideo.errors import InvalidField
from fastvideo.media.images import decode_image
from fastvideo.media.tensors import decode_tensors
from fastvideo.requests.types import ImagePart, LatentPart
from fastvideo.scheduling.commands import PrepareLoop

_NODE: Final = "request"

StoredPart = ImagePart | LatentPart


class RequestInputs:
    """Fetches what a request was given and binds it to its loops by role.

    An image becomes uint8 [Y, X, 3], latents are the tensor of that name.
    """

    def __init__(self, source: ArtifactSource, values: ValueStore) -> None:
        self._source = source
        self._values = values

    def needed(self, command: PrepareLoop) -> bool:
        """Whether the request names stored inputs that the loop is not given otherwise."""
        return bool(_parts(command))

    def fetch(self, command: PrepareLoop) -> PrepareLoop:
        """The command with the request's stored inputs among its own; blocks.

        Raises NotFound and Unavailable as the store does, OutOfMemory when it does not fit,
        InvalidField for an artifact that holds no latents, or no image (INVALID_IMAGE).
        """
        scope = (command.loop.request_id, command.loop.attempt)
        inputs = dict(command.inputs)
        for part in _parts(command):
            name = f"{_NODE}.{part.role}"
            if not self._values.has(scope, name):
                data = self._source.get(part.artifact_id)
                with self._values.staging.hold(part.artifact_id, len(data)):
                    self._values.put(scope, name, _value(part, data))
            inputs[part.role] = name
        return replace(command, inputs=inputs)


def _parts(command: PrepareLoop) -> tuple[StoredPart, ...]:
    return tuple(
        part
        for part in command.request.inputs
        if isinstance(part, StoredPart) and part.role not in command.inputs
    )


def _value(part: StoredPart, data: bytes) -> torch.Tensor:
    field = f"inputs.{part.role}"
    if isinstance(part, ImagePart):
        return torch.from_numpy(decode_image(data, field))
    tensors = decode_tensors(data)
    if "latents" not in tensors:
        raise InvalidField(field, sorted(tensors), "an artifact with latents")
    return tensors["latents"]
