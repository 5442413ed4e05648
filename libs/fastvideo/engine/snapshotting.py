"""Attempts saved at a boundary and made again from what was saved, here or elsewhere."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import torch

from fastvideo.blobs import CorruptBlob
from fastvideo.clock import Clock
from fastvideo.engine.failures import failure_detail
from fastvideo.engine.footprint import resident_bytes
from fastvideo.engine.instance import ModelInstance
from fastvideo.engine.live import Boundary, EndedLoop, LiveLoop, LoopTable
from fastvideo.engine.residents import Residents
from fastvideo.engine.sink import BlobShelf
from fastvideo.engine.values import Scope, ValueStore
from fastvideo.errors import FailedPrecondition, FastVideoError, NotFound
from fastvideo.loops.contract import StateBase
from fastvideo.loops.snapshot_format import FORMAT, Saved, SnapshotMismatch, decode, encode
from fastvideo.loops.snapshots import load_state, save_state
from fastvideo.memory.pools import MemoryPools
from fastvideo.memory.staging import StagingArea
from fastvideo.scheduling.commands import PrepareLoop, SnapshotLoops
from fastvideo.scheduling.events import RequestSnapshotted
from fastvideo.scheduling.work import LoopSnapshot, WorkPlan
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

_OUTPUTS: Final = "outputs"
# Beside the tensors: the header, and what their names take.
_HEADER_BYTES: Final = 64 * 1024


class SnapshotGone(FailedPrecondition):
    """A snapshot's bytes are not in the store any more."""

    default_reason: ClassVar[str] = "SNAPSHOT_GONE"


@dataclass(frozen=True, slots=True)
class _Made:
    """A snapshot's bytes, and what it says of itself but its blob."""

    data: bytes
    about: LoopSnapshot


class Snapshots:
    """Saves what an attempt has on this worker, and reads what was saved.

    States never change, so they are taken as they are at a boundary and are encoded and stored
    beside compute, which goes on. Used from any thread but that of compute: it waits.
    """

    def __init__(
        self,
        *,
        worker_id: str,
        loops: LoopTable,
        values: ValueStore,
        residents: Residents,
        pools: MemoryPools,
        shelf: BlobShelf,
        clock: Clock,
        boundary_s_max: float,
    ) -> None:
        self._worker_id = worker_id
        self._loops = loops
        self._values = values
        self._residents = residents
        self._staging = StagingArea(pools)
        self._shelf = shelf
        self._clock = clock
        self._boundary_s_max = boundary_s_max

    def take(self, command: SnapshotLoops) -> RequestSnapshotted:
        """Save an attempt; with `release`, at rest, and then it is to be freed.

        Whatever goes wrong is told in the answer, and the attempt goes on.
        """
        started_s = self._clock.monotonic_s()
        scope = (command.request_id, command.attempt)
        held: tuple[LiveLoop, ...] = ()
        snapshots: tuple[LoopSnapshot, ...] = ()
        error = None
        try:
            if command.release:
                held = self._loops.hold(scope, self._boundary_s_max)
            snapshots = self._save(scope, self._loops.boundary(scope))
        except Exception as failure:  # noqa: BLE001 - a kernel may fail at saving as at anything
            if not isinstance(failure, FastVideoError):
                _LOG.error("snapshot failed", exc_info=failure, request_id=command.request_id)
            error = failure_detail(failure)
        finally:
            if command.release and error is None:
                self._loops.close(scope)
                # Wherever it stands: it goes on from its last boundary.
                self._loops.release(lambda loop: loop.scope == scope, forced=True)
            self._loops.let_go(held)
        event = RequestSnapshotted(
            worker_id=self._worker_id,
            request_id=command.request_id,
            attempt=command.attempt,
            snapshots=snapshots,
            seconds=self._clock.monotonic_s() - started_s,
            released=command.release and error is None,
            error=error,
        )
        _note(event)
        return event

    def fetch(self, restore: LoopSnapshot) -> Saved:
        """What a snapshot holds.

        Raises SnapshotGone when the store has lost it, SnapshotMismatch for other bytes than it
        says and for a format that is not known here, Unavailable and OutOfMemory.
        """
        if restore.format != FORMAT:
            raise SnapshotMismatch(
                f"the snapshot has format {restore.format}; this worker reads {FORMAT}",
                subject="format",
            )
        with self._staging.hold(f"restore/{restore.digest}", 2 * restore.size_bytes):
            try:
                return decode(self._shelf.get_blob(restore.digest, restore.size_bytes))
            except NotFound as error:
                raise SnapshotGone(
                    f"the snapshot of {restore.loop.request_id}/{restore.loop.node_id} is gone",
                    subject=restore.digest,
                ) from error
            except CorruptBlob as error:
                raise SnapshotMismatch(error.message, subject=restore.digest) from error

    def restore_state(self, command: PrepareLoop, saved: Saved) -> StateBase:
        """The state that was saved, as of the command's attempt.

        Raises SnapshotMismatch when the snapshot is of another loop, card, weights or schema,
        or of a state with other bytes.
        """
        restore = command.restore
        assert restore is not None
        kernel, instance = self._residents.kernel(command.model_instance_id, command.loop_id)
        _check_model(restore, instance)
        state: StateBase = load_state(kernel, saved, command.loop, command.request, instance)
        found = hashlib.sha256(kernel.state_bytes(state)).hexdigest()
        if found != restore.state_digest:
            raise SnapshotMismatch(
                f"the state of {command.loop.node_id} has the digest {found}, not "
                f"{restore.state_digest}",
                subject="state_digest",
            )
        return state

    def restore_ended(self, command: PrepareLoop, saved: Saved, role: str = "") -> WorkPlan:
        """Put back what an ended loop had left; its plan is empty.

        Raises SnapshotMismatch, and what the store of values raises.
        """
        restore = command.restore
        assert restore is not None
        if saved.kind != _OUTPUTS or saved.loop_id != command.loop_id:
            raise SnapshotMismatch(
                f"the snapshot holds the {saved.kind} of {saved.loop_id}", subject="kind"
            )
        _, instance = self._residents.kernel(command.model_instance_id, command.loop_id)
        _check_model(restore, instance)
        if restore.loop_result is None:
            raise SnapshotMismatch("an ended loop has a result", subject="loop_result")
        scope = (command.loop.request_id, command.loop.attempt)
        ended = EndedLoop(
            loop_id=command.loop_id,
            model_instance_id=command.model_instance_id,
            state_version=restore.state_version,
            steps=restore.steps,
            result=replace(restore.loop_result, loop=command.loop),
            saved=replace(restore, loop=command.loop),
        )
        try:
            for name, value in saved.parts.items():
                self._values.put(scope, f"{command.loop.node_id}.{name}", value, role=role)
            self._loops.add_ended(command.loop, ended)
        except FastVideoError:
            self._values.release_node(scope, command.loop.node_id)
            raise
        return WorkPlan(loop=command.loop, state_version=restore.state_version)

    def _save(self, scope: Scope, boundary: Boundary) -> tuple[LoopSnapshot, ...]:
        snapshots = []
        for ended in boundary.ended:
            if ended.saved is None:
                ended.saved = self._kept(scope, ended)
            snapshots.append(ended.saved)
        for loop, state in boundary.loops:
            if loop.saved is None or loop.saved.state_version != state.version:
                loop.saved = self._live(loop, state)
            snapshots.append(loop.saved)
        return tuple(snapshots)

    def _kept(self, scope: Scope, ended: EndedLoop) -> LoopSnapshot:
        """A snapshot of what an ended loop left."""
        ref = ended.result.loop
        parts = self._values.bind(
            scope, {name: f"{ref.node_id}.{name}" for name in ended.result.value_names}
        )
        kernel, instance = self._residents.kernel(ended.model_instance_id, ended.loop_id)
        with self._room(ref.node_id, parts):
            data = encode(
                Saved(
                    kind=_OUTPUTS,
                    loop_id=ended.loop_id,
                    schema=kernel.spec.state_schema,
                    version=ended.state_version,
                    parts=parts,
                )
            )
            about = LoopSnapshot(
                loop=ref,
                loop_id=ended.loop_id,
                ended=True,
                state_version=ended.state_version,
                steps_done=ended.steps,
                steps=ended.steps,
                schema=kernel.spec.state_schema,
                format=FORMAT,
                loop_result=ended.result,
            )
            return self._stored(_Made(data, about), instance)

    def _live(self, loop: LiveLoop, state: StateBase) -> LoopSnapshot:
        """A snapshot of a loop's state."""
        kernel, instance = self._residents.kernel(loop.model_instance_id, loop.loop_id)
        plan = kernel.plan_step(state, loop.plan_context)
        position = plan.units[0].step_range if plan is not None else None
        with torch.no_grad(), self._room(loop.ref.node_id, state):
            about = LoopSnapshot(
                loop=loop.ref,
                loop_id=loop.loop_id,
                state_version=state.version,
                steps_done=position.start if position is not None else 0,
                steps=position.total if position is not None else 0,
                schema=kernel.spec.state_schema,
                format=FORMAT,
                state_digest=hashlib.sha256(kernel.state_bytes(state)).hexdigest(),
            )
            return self._stored(_Made(save_state(kernel, state), about), instance)

    def _stored(self, made: _Made, instance: ModelInstance | None) -> LoopSnapshot:
        return replace(
            made.about,
            digest=self._shelf.put_blob(made.data),
            size_bytes=len(made.data),
            card_digest=instance.card_digest if instance is not None else "",
            weights_version=instance.weights_version if instance is not None else "",
        )

    def _room(self, node_id: str, value: Any) -> Any:
        """Staging for a copy of the tensors and for the bytes that they become."""
        return self._staging.hold(f"snapshot/{node_id}", 2 * resident_bytes(value) + _HEADER_BYTES)


def _note(event: RequestSnapshotted) -> None:
    """Those that go on are saved every few seconds, which is no news."""
    tell = _LOG.info if event.released or event.error is not None else _LOG.debug
    tell(
        "attempt saved" if event.error is None else "attempt not saved",
        request_id=event.request_id,
        attempt=event.attempt,
        reason=event.error.reason if event.error is not None else "",
        nodes=[snapshot.loop.node_id for snapshot in event.snapshots],
        size_bytes=sum(snapshot.size_bytes for snapshot in event.snapshots),
        seconds=round(event.seconds, 4),
        released=event.released,
    )


def _check_model(restore: LoopSnapshot, instance: ModelInstance | None) -> None:
    """Raise SnapshotMismatch unless a snapshot is of a model's card and weights."""
    if instance is None:
        return
    for name, found, wanted in (
        ("card_digest", restore.card_digest, instance.card_digest),
        ("weights_version", restore.weights_version, instance.weights_version),
    ):
        if found != wanted:
            raise SnapshotMismatch(
                f"the snapshot was made with {name} {found}; {wanted} is loaded here",
                subject=name,
                attributes={"found": found, "allowed": wanted},
            )
