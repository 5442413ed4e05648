"""Values in and out of a worker as manifests and safetensors bytes."""

import math
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

import torch

from fastvideo.clock import Clock
from fastvideo.engine.notes import NoteBook
from fastvideo.engine.values import Scope, ValueStore
from fastvideo.errors import InvalidField
from fastvideo.media.tensors import decode_tensors, encode_tensors
from fastvideo.memory.staging import Staged
from fastvideo.model.cache_checks import check_manifest
from fastvideo.model.transfers import TransferManifest, TransferTensor
from fastvideo.transport.recorded import Move, recorded

_LIFETIME: Final = "request"
# Names, shapes and types before the tensors.
_HEADER_BYTES: Final = 64 * 1024


class Transfers:
    """Values in and out of one worker, each move noted from its start to its end.

    Raises as `send` and `receive` do.
    """

    def __init__(self, values: ValueStore, notes: NoteBook, clock: Clock) -> None:
        self._values = values
        self._notes = notes
        self._clock = clock

    def send(self, manifest: TransferManifest) -> tuple[TransferManifest, bytes, Staged]:
        """The tensors that a manifest names; see `send`."""
        with self._recorded(manifest, manifest.producer_id) as move:
            filled, payload, staged = send(self._values, manifest)
            move.manifest, move.size_bytes = filled, len(payload)
            return filled, payload, staged

    def receive(self, manifest: TransferManifest, payload: bytes) -> None:
        """Keep the payload's tensors; see `receive`."""
        with self._recorded(manifest, manifest.consumer_id) as move:
            move.size_bytes = len(payload)
            receive(self._values, manifest, payload)

    def _recorded(self, manifest: TransferManifest, scope: str) -> AbstractContextManager[Move]:
        move = Move(manifest=manifest, request_id=scope.rpartition("/")[0])
        return recorded(move, self._notes.add, self._clock.monotonic_s)


def send(values: ValueStore, manifest: TransferManifest) -> tuple[TransferManifest, bytes, Staged]:
    """The tensors that a manifest names, from the producer's scope "REQUEST/ATTEMPT".

    With them what counts them in the staging pool, to be closed once they are sent. Raises
    InvalidField for a manifest that cannot be, FailedPrecondition for a value that is not here,
    OutOfMemory when the payload does not fit.
    """
    scope = _scope("manifest.producer_id", manifest.producer_id)
    # Who asks may leave out what is always the same.
    check_manifest(replace(manifest, lifetime=manifest.lifetime or _LIFETIME))
    names = [tensor.name for tensor in manifest.tensors]
    tensors = values.bind(scope, {name: name for name in names})
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise InvalidField("manifest.tensors.name", name, "the name of a tensor")
    described = tuple(_describe(name, tensors[name]) for name in names)
    filled = TransferManifest(
        transfer_id=manifest.transfer_id,
        tensors=described,
        producer_id=manifest.producer_id,
        consumer_id=manifest.consumer_id,
        lifetime=_LIFETIME,
        cache_key=manifest.cache_key,
        priority=manifest.priority,
        completion_event=manifest.completion_event,
    )
    size = sum(tensor.nbytes for tensor in tensors.values()) + _HEADER_BYTES
    staged = values.staging.hold(manifest.transfer_id or manifest.producer_id, size)
    try:
        return filled, encode_tensors(tensors), staged
    except BaseException:
        staged.close()
        raise


def receive(values: ValueStore, manifest: TransferManifest, payload: bytes) -> None:
    """Keep the payload's tensors in the consumer's scope "REQUEST/ATTEMPT".

    Raises InvalidField when the payload is not what the manifest says, OutOfMemory when it
    does not fit.
    """
    scope = _scope("manifest.consumer_id", manifest.consumer_id)
    check_manifest(manifest)
    if manifest.lifetime != _LIFETIME:
        raise InvalidField("manifest.lifetime", manifest.lifetime, _LIFETIME)
    with values.staging.hold(manifest.transfer_id or manifest.consumer_id, len(payload)):
        _keep(values, manifest, scope, decode_tensors(payload))


def _keep(
    values: ValueStore, manifest: TransferManifest, scope: Scope, tensors: dict[str, torch.Tensor]
) -> None:
    names = [tensor.name for tensor in manifest.tensors]
    if set(tensors) != set(names):
        raise InvalidField("payload", sorted(tensors), f"the tensors {sorted(names)}")
    for told in manifest.tensors:
        found = _describe(told.name, tensors[told.name])
        if (told.shape, told.dtype) != (found.shape, found.dtype):
            raise InvalidField(
                f"payload.{told.name}",
                f"{found.dtype} {list(found.shape)}",
                f"{told.dtype} {list(told.shape)}, as the manifest says",
            )
    for name, tensor in tensors.items():
        values.put(scope, name, tensor)


def _describe(name: str, tensor: torch.Tensor) -> TransferTensor:
    shape = tuple(tensor.shape)
    # What travels is contiguous, whatever the layout here is.
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return TransferTensor(
        name=name,
        shape=shape,
        dtype=str(tensor.dtype).removeprefix("torch."),
        strides=strides,
        location="cpu",
    )


def _scope(field: str, text: str) -> Scope:
    request_id, _, attempt = text.rpartition("/")
    if not request_id or not attempt.isdigit() or int(attempt) < 1:
        raise InvalidField(field, text, "REQUEST/ATTEMPT, such as req_01/1")
    return request_id, int(attempt)
