"""Saved loops: what the artifact store keeps for a simulated worker."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fastvideo.requests.types import ErrorDetail, RequestSpec
from fastvideo.scheduling.events import RequestSnapshotted
from fastvideo.scheduling.work import LoopRef, LoopSnapshot
from fastvideo.simulation.loops import SimulatedLoop
from fastvideo.simulation.models import Run

# How fast a loop's state is saved and fetched.
_BYTES_PER_S: Final = 1e9
_SECONDS_MIN: Final = 0.001


@dataclass(frozen=True, slots=True)
class _Blob:
    digest: int
    done: frozenset[int]


@dataclass(slots=True)
class Saving:
    """An attempt that is to be saved at the next boundary of all its loops."""

    request_id: str
    attempt: int
    release: bool
    begun: bool = False

    @property
    def scope(self) -> tuple[str, int]:
        """The attempt."""
        return self.request_id, self.attempt

    def report(
        self, worker_id: str, saved: tuple[LoopSnapshot, ...], seconds: float
    ) -> RequestSnapshotted:
        """What the worker says of it."""
        error = None
        if not saved:
            error = ErrorDetail(reason="NOT_FOUND", message="the attempt has nothing here")
        return RequestSnapshotted(
            worker_id=worker_id,
            request_id=self.request_id,
            attempt=self.attempt,
            snapshots=saved,
            seconds=seconds,
            released=self.release and bool(saved),
            error=error,
        )


class SnapshotStore:
    """Blobs by name; nothing is ever forgotten."""

    def __init__(self) -> None:
        self._blobs: dict[str, _Blob] = {}

    def seconds(self, size_bytes: int) -> float:
        """How long saving or fetching takes."""
        return _SECONDS_MIN + size_bytes / _BYTES_PER_S

    def save(self, loops: Iterable[SimulatedLoop]) -> tuple[LoopSnapshot, ...]:
        """Save loops as they are; one snapshot each."""
        return tuple(self._save(loop) for loop in loops)

    def fetch(self, name: str) -> _Blob:
        """What was saved under a name. KeyError when nothing was."""
        return self._blobs[name]

    def _save(self, loop: SimulatedLoop) -> LoopSnapshot:
        ref = loop.ref
        name = f"{ref.request_id}/{ref.node_id}/{loop.position}/{loop.digest:08x}"
        self._blobs[name] = _Blob(loop.digest, frozenset(loop.done))
        return LoopSnapshot(
            loop=ref,
            loop_id=loop.run.loop_id,
            ended=loop.result is not None,
            state_version=loop.position,
            steps_done=loop.position,
            steps=loop.run.units,
            schema="simulated",
            format=1,
            digest=name,
            size_bytes=loop.run.state_bytes,
            state_digest=f"{loop.digest:08x}",
            loop_result=loop.result,
        )


def restored(
    store: SnapshotStore,
    snapshot: LoopSnapshot,
    spec: RequestSpec,
    ref: LoopRef,
    run: Run,
    instance: str,
) -> SimulatedLoop:
    """A loop as it was saved, for a new attempt."""
    blob = store.fetch(snapshot.digest)
    loop = SimulatedLoop(spec, ref, run, instance, blob.digest, done=set(blob.done))
    if snapshot.ended:
        loop.end()
    return loop
