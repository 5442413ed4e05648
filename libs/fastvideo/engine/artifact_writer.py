"""The loop "write": a request's outputs as artifacts, one unit each, off the step path."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fastvideo.artifacts.state import artifact_id_of
from fastvideo.artifacts.types import ArtifactRecord, Producer
from fastvideo.deployment.card import WORKER_ROLE
from fastvideo.engine import behavior
from fastvideo.engine.footprint import resident_bytes
from fastvideo.engine.instance import ModelInstance
from fastvideo.engine.outputs import PREVIEW, VIDEO, file_of, wanted_files
from fastvideo.engine.sink import ArtifactSink, NewArtifact, StreamCancelled
from fastvideo.errors import ContractViolation
from fastvideo.loops.behavior import TRAJECTORY
from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.snapshot_format import SnapshotMismatch
from fastvideo.loops.snapshots import fields_of, resumed, typed_fields
from fastvideo.memory.pools import MemoryTag
from fastvideo.model.specs import CostPrior, LoopSpec, StepPolicy
from fastvideo.requests.types import RequestSpec, TextPart
from fastvideo.scheduling.work import (
    CachePlan,
    LoopRef,
    OutputSink,
    PlacementHint,
    ResourceRequest,
    StepRange,
    UnitKind,
    WorkPlan,
    WorkUnit,
)

LOOP_ID: Final = "write"

# Headers of a file; all there is of a very small one.
_CONTAINER_BYTES: Final = 64 * 1024

_SAVED: Final = ("values", "outputs", "stored")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteState(StateBase):
    """What is to be written, and what is stored already."""

    values: Values
    # Output names, in order.
    outputs: tuple[str, ...]
    # One for each output so far; None for one that was cancelled.
    stored: tuple[ArtifactRecord | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a file; it has no record when its stream was cancelled."""

    record: ArtifactRecord | None


class ArtifactWriter:
    """A loop kernel of no model. Its units run on an IO thread and take no compute window."""

    spec = LoopSpec(
        loop_id=LOOP_ID,
        kind="artifact_write",
        unit_kind=UnitKind.ARTIFACT_WRITE,
        state_schema="artifact_write.v1",
        step_policy=StepPolicy(count_from="outputs", batchable=False, max_batch=1),
        preemption_policy="every_step",
        graph_capture_policy="none",
        valid_parallel_plans=("single",),
        cost=CostPrior(phase="write", base_seconds=0.03),
    )

    def __init__(self, sink: ArtifactSink, worker_id: str, versions: Mapping[str, str]) -> None:
        self._sink = sink
        self._worker_id = worker_id
        self._versions = dict(versions)

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: Any
    ) -> WriteState:
        """Fix the files that will be written. Raises InvalidField when one cannot be made."""
        files = wanted_files(request.outputs, inputs)
        return WriteState(
            loop=loop,
            request=request,
            values={file.value: inputs[file.value] for file in files}
            | {name: inputs[name] for name in behavior.VALUES if name in inputs},
            outputs=tuple(file.output for file in files),
        )

    def plan_step(self, state: WriteState, context: PlanContext) -> WorkPlan | None:
        """The next file, or None when all are stored."""
        index, total = len(state.stored), len(state.outputs)
        if index == total:
            return None
        file = file_of(state.outputs[index])
        loop = state.loop
        # A file is at most about as large as what it is made of, and its container.
        size = file.copies * resident_bytes(state.values[file.value]) + _CONTAINER_BYTES
        unit = WorkUnit(
            unit_id=f"{loop.request_id}/{loop.node_id}/{loop.attempt}/{index}",
            loop=loop,
            session_id=context.session_id,
            program_id=context.program_id,
            loop_id=LOOP_ID,
            model_instance_id=context.model_instance_id,
            kind=UnitKind.ARTIFACT_WRITE,
            step_range=StepRange(start=index, stop=index + 1, total=total),
            batch_key=f"{LOOP_ID}/{file.output}",
            max_batch=1,
            cost_phase="write",
            cost_shape=f"{file.output}/{_shape(state.values[file.value])}",
            resources=ResourceRequest(memory_bytes={MemoryTag.STAGING: size}, staging_bytes=size),
            cache_plan=CachePlan(),
            placement_hint=PlacementHint(sticky=True),
            output_sinks=(OutputSink(kind="artifact", name=file.output),),
            cancel_boundary=True,
        )
        return WorkPlan(loop=loop, state_version=state.version, units=(unit,))

    def run_step(
        self, batch: Sequence[tuple[WriteState, WorkUnit]], instance: Any, context: StepContext
    ) -> Sequence[Written]:
        """Encode and store each unit's file, while its stream is wanted.

        Raises what the sink raises.
        """
        outputs = []
        for state, unit in batch:
            record = self._write(state, unit, instance, context)
            if record is not None:
                context.artifacts.setdefault(unit.unit_id, []).append(record.artifact_id)
            outputs.append(Written(record))
        return outputs

    def advance(self, state: WriteState, unit: WorkUnit, output: Written) -> WriteState:
        """The state with one more artifact stored, or given up."""
        if unit.step_range.start != len(state.stored):
            raise ContractViolation(f"{unit.unit_id} was written already", subject=unit.unit_id)
        return replace(state, version=state.version + 1, stored=(*state.stored, output.record))

    def finalize(self, state: WriteState, instance: Any) -> LoopOutput:
        """The artifacts' ids, in the order of the outputs."""
        ids = tuple(record.artifact_id for record in state.stored if record is not None)
        return LoopOutput(artifact_ids=ids)

    def state_bytes(self, state: WriteState) -> bytes:
        """The outputs and the ids and digests of what is stored."""
        stored = "\n".join(
            f"{record.artifact_id} {record.digest}" if record is not None else "cancelled"
            for record in state.stored
        )
        return f"{state.version}\n{' '.join(state.outputs)}\n{stored}".encode()

    def save_state(self, state: WriteState) -> Values:
        """The values that become files, and the records of those that are stored."""
        return fields_of(state, _SAVED)

    def load_state(
        self, loop: LoopRef, request: RequestSpec, saved: Values, instance: Any
    ) -> WriteState:
        """The state with the same files before it."""
        fields = typed_fields(WriteState, saved, _SAVED)
        fresh = self.init_state(loop, request, fields["values"], instance)
        if fields["outputs"] != fresh.outputs:
            raise SnapshotMismatch(
                f"outputs are {fields['outputs']}; the request's are {fresh.outputs}",
                subject="outputs",
            )
        return resumed(fresh, fields)

    def _write(
        self,
        state: WriteState,
        unit: WorkUnit,
        instance: ModelInstance | None,
        context: StepContext,
    ) -> ArtifactRecord | None:
        file = file_of(state.outputs[unit.step_range.start])

        def wanted() -> bool:
            streams = context.streams
            return streams is None or not streams.is_cancelled(unit.loop, file.output)

        if not wanted():
            return None
        data, media = file.encode(state.values[file.value], state.request)
        if context.staging is not None:
            context.staging.stage(unit, len(data))
        artifact = NewArtifact(
            artifact_id=artifact_id_of(unit.loop.request_id, unit.loop.node_id, file.output),
            kind=file.kind,
            name=file.name,
            content_type=file.content_type,
            producer=self._producer(state, unit, instance),
            media=media,
            parents=_parents(state.request),
            tenant_id=state.request.tenant_id,
            preview_artifact_id=_preview_of(state, file.output),
        )
        try:
            record = self._sink.put(artifact, data, wanted)
        except StreamCancelled:
            return None
        if file.output == TRAJECTORY:
            # Told once the trajectory is stored: a record never points to nothing.
            context.notes.append(
                behavior.recorded(
                    state.request, state.values, record.artifact_id, _stored_ids(state)
                )
            )
        return record

    def _producer(
        self, state: WriteState, unit: WorkUnit, instance: ModelInstance | None
    ) -> Producer:
        versions = dict(self._versions)
        if instance is not None:
            versions["weights"] = instance.weights_version
            versions |= {f"adapter:{k}": v for k, v in instance.adapter_versions.items()}
        return Producer(
            request_id=unit.loop.request_id,
            session_id=unit.session_id,
            program_id=unit.program_id,
            node_id=unit.loop.node_id,
            model_id=state.request.model_id,
            model_instance_id=unit.model_instance_id,
            worker_id=self._worker_id,
            attempt=unit.loop.attempt,
            versions=versions,
            loop_id=LOOP_ID,
            role_id=WORKER_ROLE,
        )


def _stored_ids(state: WriteState) -> dict[str, str]:
    """The artifacts that are stored, by output."""
    return {
        output: record.artifact_id
        for output, record in zip(state.outputs, state.stored, strict=False)
        if record is not None
    }


def _preview_of(state: WriteState, output: str) -> str:
    """The stored preview of the video, when the video is what is written."""
    stored = dict(zip(state.outputs, state.stored, strict=False))
    if output != VIDEO or stored.get(PREVIEW) is None:
        return ""
    return artifact_id_of(state.loop.request_id, state.loop.node_id, PREVIEW)


def _parents(request: RequestSpec) -> tuple[str, ...]:
    """Ids of the stored artifacts that the request was given."""
    return tuple(
        artifact_id
        for part in request.inputs
        if not isinstance(part, TextPart) and (artifact_id := getattr(part, "artifact_id", ""))
    )


def _shape(value: Any) -> str:
    return "x".join(str(size) for size in getattr(value, "shape", ()))
