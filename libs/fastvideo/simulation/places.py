"""Whose a place is: what is kept for higher classes, whose turn it is, and that none stays empty.

The policy's promises about places told a second time, without the core's code:

- a request takes no place that is kept for a class above its own;
- nobody who could have a place waits while it is free;
- of the places that one who has waited too long could have, it is not passed over by those that
  came later again and again: every second one goes to it, or to one that came before it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.policy import SchedulingPolicy, SloClass
from fastvideo.simulation.books import RequestBook, WorkerBook

Fits = Callable[[RequestSpec, WorkerBook], bool]
"""Whether a request may go to a worker, and all of it could run there, were it alone."""


class Line(NamedTuple):
    """What requests have in common that may have the same places, but for what they need."""

    model_id: str
    pool: str
    mesh: str
    # Places of a worker that are kept for higher classes.
    kept: int


@dataclass(slots=True)
class Waiting:
    """A request without a place: since when, in which order it came, how often passed over."""

    since: datetime | None
    number: int
    passed: int = 0


@dataclass(slots=True)
class Queue:
    """All that wait, by line, in the order in which they came."""

    policy: SchedulingPolicy
    lines: dict[Line, dict[str, Waiting]] = field(default_factory=dict)
    entered: int = 0
    # Who came since nobody waits beside a free place, as far as was checked; and the same of
    # workers that have given a place back or can be told something again.
    arrived: dict[str, None] = field(default_factory=dict)
    freed: dict[str, None] = field(default_factory=dict)

    def enter(self, spec: RequestSpec, since: datetime | None) -> None:
        """A request waits from now on."""
        self.entered += 1
        entry = Waiting(since, self.entered)
        self.lines.setdefault(self.line(spec), {})[spec.request_id] = entry
        self.arrived[spec.request_id] = None

    def leave(self, spec: RequestSpec) -> Waiting | None:
        """It waits no longer, if it did."""
        self.arrived.pop(spec.request_id, None)
        line = self.line(spec)
        waiting = self.lines.get(line, {})
        entry = waiting.pop(spec.request_id, None)
        if not waiting:
            self.lines.pop(line, None)
        return entry

    def line(self, spec: RequestSpec) -> Line:
        """Where a request waits."""
        return line_of(self.policy, spec.model_id, spec.priority)


def line_of(policy: SchedulingPolicy, model_id: str, priority: int) -> Line:
    """Where requests of a model wait that have a priority."""
    known = policy.slo_class(priority) or SloClass()
    above = [one for one in policy.slo_classes.values() if one.priority_min > priority]
    kept = sum(one.reserved_places for one in above)
    return Line(model_id, known.pool, known.mesh, kept)


class Places:
    """Checks what becomes of the places of workers."""

    def __init__(
        self,
        policy: SchedulingPolicy,
        queue: Queue,
        requests: Mapping[str, RequestBook],
        workers: Mapping[str, WorkerBook],
        fits: Fits,
    ) -> None:
        self._policy = policy
        self._fits = fits
        self._queue = queue
        self._requests = requests
        self._workers = workers

    def kept_from(self, spec: RequestSpec, worker: WorkerBook) -> int:
        """Places of a worker that a request leaves to classes above its own, beside theirs.

        The last place is anybody's.
        """
        if not self._policy.slo_classes:
            return 0
        above = [c for c in self._policy.slo_classes.values() if c.priority_min > spec.priority]
        priorities = [self._requests[name].spec.priority for name in worker.residents]
        lacking = [
            sum(c.reserved_places for c in above if c.priority_min >= one.priority_min)
            - sum(priority >= one.priority_min for priority in priorities)
            for one in above
        ]
        return max(0, min(worker.places - 1, max(lacking, default=0)))

    def is_free(self, spec: RequestSpec, worker: WorkerBook) -> bool:
        """Whether a worker takes requests, has a place, and need not keep it for others."""
        if worker.draining or worker.detached or worker.strays:
            return False
        free = worker.places - len(worker.residents)
        return free > 0 and free > self.kept_from(spec, worker)

    # -- turns ---------------------------------------------------------------------------

    def passed_over(self, spec: RequestSpec, worker: WorkerBook, now: datetime) -> str:
        """A request takes a place: who is passed over once too often by that, or nobody."""
        own = self._queue.leave(spec)
        models = {one.model_id for one in worker.attached.instances}
        turns = self._turns(len(models))
        for name, entry in self._first_too_late(models, now):
            if own is not None and own.number < entry.number:
                entry.passed = 0
            elif self._can_have(name, worker):
                entry.passed += 1
                if entry.passed > turns:
                    return name
        return ""

    def _turns(self, models: int) -> int:
        """Places that later ones may have had since the last turn of one who came before.

        Those that wait for other models, or are bound to other workers, have turns of their own,
        which may be of the same worker's places.
        """
        policy = self._policy
        priorities = {one.priority_min for one in policy.slo_classes.values()}
        least = min(priorities, default=0) - 1
        kinds = {line_of(policy, "", priority) for priority in (*priorities, least)}
        bindings = {(kind.pool, kind.mesh) for kind in kinds}
        return 1 if models * len(bindings) == 1 else models * len(kinds)

    def _first_too_late(self, models: set[str], now: datetime) -> Iterator[tuple[str, Waiting]]:
        """Those that have waited too long, of each line the first few."""
        for line, waiting in self._queue.lines.items():
            if line.model_id not in models:
                continue
            for name, entry in islice(waiting.items(), self._policy.deferrals_max):
                if entry.since is None:
                    break
                waited_s = (now - entry.since).total_seconds()
                if waited_s < self._policy.queue_wait_seconds_max:
                    break
                yield name, entry

    # -- free places ---------------------------------------------------------------------

    def empty_beside(self) -> tuple[str, str] | None:
        """A request that waits, and a worker with a place that it could have; None is right."""
        queue = self._queue
        for worker_id in _taken_out(queue.freed):
            worker = self._workers.get(worker_id)
            for waiting in queue.lines.values() if worker is not None else ():
                assert worker is not None
                # All of a line may have the same places, but for what they need.
                if not self.is_free(self._requests[next(iter(waiting))].spec, worker):
                    continue
                found = next((name for name in waiting if self._can_have(name, worker)), "")
                if found and self._is_tried(worker):
                    return found, worker_id
        for name in _taken_out(queue.arrived):
            for worker_id, worker in self._workers.items():
                if self._can_have(name, worker) and self._is_tried(worker):
                    return name, worker_id
        return None

    def _can_have(self, name: str, worker: WorkerBook) -> bool:
        spec = self._requests[name].spec
        return self.is_free(spec, worker) and self._fits(spec, worker)

    def _is_tried(self, worker: WorkerBook) -> bool:
        """Whether too few can have no place there for others to be left untried behind them."""
        names = (name for waiting in self._queue.lines.values() for name in waiting)
        unable = (name for name in names if not self._can_have(name, worker))
        return len(list(islice(unable, self._policy.deferrals_max))) < self._policy.deferrals_max


def _taken_out(names: dict[str, None]) -> list[str]:
    taken = list(names)
    names.clear()
    return taken
