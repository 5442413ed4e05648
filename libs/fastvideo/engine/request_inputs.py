"""Stored artifacts that a request names, such as latents, as values of its loops."""

from dataclasses import replace
from typing import Final

from fastvideo.engine.sink import ArtifactSource
from fastvideo.engine.values import ValueStore
from fastvideo.errors import InvalidField
from fastvideo.media.tensors import decode_tensors
from fastvideo.requests.types import LatentPart
from fastvideo.scheduling.commands import PrepareLoop

_NODE: Final = "request"


class RequestInputs:
    """Fetches the latents that a request was given and binds them to its loops by role."""

    def __init__(self, source: ArtifactSource, values: ValueStore) -> None:
        self._source = source
        self._values = values

    def needed(self, command: PrepareLoop) -> bool:
        """Whether the request names stored latents that the loop is not given otherwise."""
        return bool(_parts(command))

    def fetch(self, command: PrepareLoop) -> PrepareLoop:
        """The command with the request's latents among its inputs; blocks.

        Raises NotFound and Unavailable as the store does, InvalidField for an artifact that
        holds no latents.
        """
        scope = (command.loop.request_id, command.loop.attempt)
        inputs = dict(command.inputs)
        for part in _parts(command):
            name = f"{_NODE}.{part.role}"
            if not self._values.has(scope, name):
                tensors = decode_tensors(self._source.get(part.artifact_id))
                if "latents" not in tensors:
                    raise InvalidField(
                        f"inputs.{part.role}", sorted(tensors), "an artifact with latents"
                    )
                self._values.put(scope, name, tensors["latents"])
            inputs[part.role] = name
        return replace(command, inputs=inputs)


def _parts(command: PrepareLoop) -> tuple[LatentPart, ...]:
    return tuple(
        part
        for part in command.request.inputs
        if isinstance(part, LatentPart) and part.role not in command.inputs
    )
