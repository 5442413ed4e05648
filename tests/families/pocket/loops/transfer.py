"""Values to another worker and from it, by its `WorkerService.Transfer`, off the step path.

A request names the other side in a text part "peer": HOST:PORT/REQUEST/ATTEMPT, the worker and
the scope there.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import grpc
import torch

from fastvideo import wire
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.errors import InvalidField
from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.state_encoding import encode_state, tensor_digest
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.media.tensors import decode_tensors, encode_tensors
from fastvideo.model.cache_checks import check_manifest
from fastvideo.model.specs import LoopSpec
from fastvideo.model.transfers import TransferManifest, TransferTensor
from fastvideo.models.resident import ResidentModel
from fastvideo.requests.types import RequestSpec
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.scheduling.work import LoopRef, WorkPlan, WorkUnit
from fastvideo.telemetry.tracing import current_traceparent
from fastvideo.transport.recorded import Move, recorded
from tests.families.pocket.checkpoint import FEATURE_SIZE
from tests.families.pocket.loops.encode import LENGTH
from tests.families.pocket.text import part_text

PEER: Final = "peer"
VALUE: Final = "encode.text_features"
SIZE_BYTES: Final = 4 * 2 * LENGTH * FEATURE_SIZE
TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferState(StateBase):
    """Where to or from, and the tensor once it is here or was taken."""

    address: str
    scope: str
    # [2, L, D]
    features: torch.Tensor | None = None
    done: bool = False


class _Transfer:
    """What both directions share: one unit that reserves the bytes that move."""

    def __init__(self, spec: LoopSpec) -> None:
        self.spec = spec

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: ResidentModel
    ) -> TransferState:
        """The other side. Raises InvalidField for a peer that is none."""
        address, _, scope = part_text(request, PEER).partition("/")
        if not scope:
            raise InvalidField("peer", address, "HOST:PORT/REQUEST/ATTEMPT")
        features = inputs.get("text_features")
        return TransferState(
            loop=loop, request=request, address=address, scope=scope, features=features
        )

    def plan_step(self, state: TransferState, context: PlanContext) -> WorkPlan | None:
        """The move, until it was made."""
        shape = UnitShape(
            batch_key=f"{self.spec.loop_id}/{state.address}",
            # Priced by the byte.
            cost_shape=str(SIZE_BYTES),
            activation_bytes=0,
            outputs=("text_features",),
            compute=False,
            staging_bytes=SIZE_BYTES,
            transfer_bytes=SIZE_BYTES,
        )
        return next_unit_plan(self.spec, state, context, int(state.done), 1, shape)

    def run_step(
        self,
        batch: Sequence[tuple[TransferState, WorkUnit]],
        instance: ResidentModel,
        context: StepContext,
    ) -> Sequence[torch.Tensor]:
        """The tensor of each unit, moved."""
        moved = []
        for state, unit in batch:
            move = Move(
                manifest=TransferManifest(transfer_id=unit.unit_id),
                request_id=unit.loop.request_id,
                unit_id=unit.unit_id,
                size_bytes=SIZE_BYTES,
            )
            with recorded(move, context.notes.append, time.monotonic):
                moved.append(self._move(state, unit, move))
        return moved

    def advance(self, state: TransferState, unit: WorkUnit, output: torch.Tensor) -> TransferState:
        """The state after the move."""
        return replace(state, version=state.version + 1, features=output, done=True)

    def finalize(self, state: TransferState, instance: ResidentModel) -> LoopOutput:
        """`text_features` [2, L, D], as they moved."""
        assert state.features is not None
        return LoopOutput(
            values={"text_features": state.features},
            digests={"text_features": tensor_digest(state.features)},
        )

    def state_bytes(self, state: TransferState) -> bytes:
        """What moves, and whether it has."""
        header = {"schema": self.spec.state_schema, "done": state.done}
        return encode_state(header, (state.features,))

    def _move(self, state: TransferState, unit: WorkUnit, move: Move) -> torch.Tensor:
        raise NotImplementedError


class SendKernel(_Transfer):
    """Puts a value into the scope of another worker."""

    def _move(self, state: TransferState, unit: WorkUnit, move: Move) -> torch.Tensor:
        assert state.features is not None
        tensor = TransferTensor(
            name=VALUE, shape=tuple(state.features.shape), dtype="float32", location="cpu"
        )
        payload = encode_tensors({VALUE: state.features})
        move.manifest = _manifest(state, unit, tensor, consumer=state.scope)
        move.size_bytes = len(payload)
        _call(state.address, move.manifest, payload)
        return state.features


class ReceiveKernel(_Transfer):
    """Takes a value out of the scope of another worker."""

    def _move(self, state: TransferState, unit: WorkUnit, move: Move) -> torch.Tensor:
        manifest = _manifest(state, unit, TransferTensor(name=VALUE), producer=state.scope)
        response = _call(state.address, manifest, b"")
        move.manifest = wire.from_proto(TransferManifest, response.manifest)
        move.size_bytes = len(response.payload)
        check_manifest(move.manifest)
        told = move.manifest.tensors[0]
        tensor = decode_tensors(response.payload)[VALUE]
        if told.shape != tuple(tensor.shape):
            raise InvalidField("manifest.tensors.shape", told.shape, str(tuple(tensor.shape)))
        return tensor


def _manifest(
    state: TransferState,
    unit: WorkUnit,
    tensor: TransferTensor,
    *,
    producer: str = "",
    consumer: str = "",
) -> TransferManifest:
    own = f"{unit.loop.request_id}/{unit.loop.attempt}"
    return TransferManifest(
        transfer_id=unit.unit_id,
        tensors=(tensor,),
        producer_id=producer or own,
        consumer_id=consumer or own,
        lifetime="request",
    )


def _call(address: str, manifest: TransferManifest, payload: bytes) -> worker_pb2.TransferResponse:
    with grpc.insecure_channel(address) as channel:
        stub = worker_pb2_grpc.WorkerServiceStub(channel)
        request = worker_pb2.TransferRequest(manifest=wire.to_proto(manifest), payload=payload)
        try:
            # The other side's span is one of this request's trace.
            trace = (("traceparent", current_traceparent()),)
            return stub.Transfer(request, timeout=TIMEOUT_S, metadata=trace)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
