"""What ran on which worker, and when: the batches of all requests.

Only the batches of watched workers are kept once they are reported.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from fastvideo.explain.records import BatchRecord
from fastvideo.scheduling.events import BatchExecuted, DispatchBatch
from fastvideo.scheduling.work import LoopRef, StepResult

Rounds = Sequence[Sequence[StepResult]]
"""The results of a batch by step of its window."""


class Workers:
    """The batches in flight anywhere, and those that watched workers reported."""

    def __init__(self) -> None:
        self._flying: dict[str, BatchRecord] = {}
        # In the order of their reports.
        self._reported: dict[str, list[BatchRecord]] = {}

    def watch(self, worker_id: str) -> None:
        """Keep the batches of a worker from now on."""
        self._reported.setdefault(worker_id, [])

    def dispatched(self, decision: DispatchBatch, at: datetime) -> BatchRecord:
        """A batch goes to its worker."""
        batch = BatchRecord(
            batch_id=decision.batch_id,
            worker_id=decision.worker_id,
            kind=decision.kind,
            request_ids=once(loop.request_id for loop in decision.loops),
            units=len(decision.unit_ids),
            window=max(1, decision.window),
            predicted_seconds=decision.predicted_seconds,
            dispatched_at=at,
            started_at=at,
        )
        self._flying[batch.batch_id] = batch
        return batch

    def yields(self, batch_id: str, reason: str) -> None:
        """A batch was told to stop at its next boundary."""
        if batch_id in self._flying:
            self._flying[batch_id].yield_reason = reason

    def executed(self, event: BatchExecuted, steps: int, at: datetime) -> BatchRecord:
        """A batch was reported, perhaps one whose dispatch is not in the log."""
        batch = self._flying.pop(event.batch_id, None) or BatchRecord(
            batch_id=event.batch_id,
            worker_id=event.worker_id,
            kind=event.kind,
            request_ids=once(result.loop.request_id for result in event.results),
            units=len({result.loop for result in event.results}),
            window=steps,
            predicted_seconds=event.predicted_seconds,
        )
        batch.waited_seconds = event.waited_seconds
        batch.measured_seconds = event.measured_seconds
        batch.forwards = event.forwards
        batch.steps = steps
        batch.settle(at)
        if event.worker_id in self._reported:
            self._reported[event.worker_id].append(batch)
        return batch

    def lost(self, worker_id: str, at: datetime) -> None:
        """What a worker ran will not be reported."""
        for batch in [b for b in self._flying.values() if b.worker_id == worker_id]:
            batch.lost_at, batch.started_at = at, None
            del self._flying[batch.batch_id]

    def held_up(self, at: datetime, worker_id: str = "") -> None:
        """A worker's stream, or every one, was gone by then; reports may have waited for it."""
        for batch in self._flying.values():
            if worker_id in ("", batch.worker_id):
                batch.held_up_at = at

    def kept(self, worker_id: str, batch_ids: Collection[str], at: datetime) -> None:
        """A worker is back with these batches; others never arrived."""
        for batch in [b for b in self._flying.values() if b.worker_id == worker_id]:
            if batch.batch_id not in batch_ids:
                batch.lost_at, batch.started_at = at, None
                del self._flying[batch.batch_id]

    def behind(
        self, worker_id: str, begin: datetime, end: datetime, but: BatchRecord | None = None
    ) -> list[BatchRecord]:
        """The batches that ran on a worker in a span of time, in the order of their reports."""
        done = self._reported.get(worker_id, [])
        found = []
        for batch in done[bisect_right(done, begin, key=_reported_at) :]:
            if _started(batch) >= end and (batch.dispatched_at or _started(batch)) >= end:
                break
            found.append(batch)
        found += [batch for batch in self._flying.values() if batch.worker_id == worker_id]
        return [batch for batch in found if batch is not but and _ran(batch, begin, end)]


def rounds_of(results: Sequence[StepResult]) -> Rounds:
    """The results of a window by step: the n-th of each loop ran together."""
    counts: defaultdict[LoopRef, int] = defaultdict(int)
    rounds: list[list[StepResult]] = []
    for result in results:
        place = counts[result.loop]
        counts[result.loop] += 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(result)
    return rounds


def once(request_ids: Iterable[str]) -> tuple[str, ...]:
    """Each id once, in the order in which they first came."""
    return tuple(dict.fromkeys(request_ids))


def _reported_at(batch: BatchRecord) -> datetime:
    assert batch.reported_at is not None
    return batch.reported_at


def _started(batch: BatchRecord) -> datetime:
    return batch.started_at or _reported_at(batch)


def _ran(batch: BatchRecord, begin: datetime, end: datetime) -> bool:
    started, ended = batch.started_at, batch.ended_at
    return started is not None and started < end and (ended is None or ended > begin)
