"""What a run comes to: waits and completions by class, utilisation by pool, what was lost.

Times of requests are virtual time, whatever the leader's clock shows.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.events import (
    BatchExecuted,
    CancelRequest,
    CompleteRequest,
    Decision,
    DispatchBatch,
    FailRequest,
    PreemptRequest,
    RestartRequest,
    SnapshotRequest,
    StartRequest,
    YieldBatch,
)
from fastvideo.simulation.agenda import MICROSECONDS
from fastvideo.simulation.arrivals import START, Arrival
from fastvideo.simulation.batches import BatchRun
from fastvideo.simulation.leader import Entry
from fastvideo.simulation.models import SimulatedModels
from fastvideo.simulation.series import PoolSeries, Samples, percentile
from fastvideo.simulation.trace import Trace
from fastvideo.simulation.worker import SimulatedWorker

_PERCENTILES: Final = (0.50, 0.95, 0.99)


@dataclass(slots=True)
class _Seen:
    """What became of one request."""

    class_name: str
    spec: RequestSpec
    accepted_us: int
    started_us: int | None = None
    ended_us: int | None = None
    ended_as: str = ""
    # Node to how many of its steps have ever run.
    ran: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Percentiles of a time, in seconds."""

    p50: float
    p95: float
    p99: float
    mean: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFigures:
    """What the requests of a class saw."""

    name: str
    accepted: int
    completed: int
    failed: int
    cancelled: int
    # Of those with a deadline: completed after it, or failed by it.
    deadline_misses: int
    deadlines: int
    # From acceptance to the first unit, and to the completion.
    wait: Spread
    completion: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFigures:
    """How busy the workers of a pool were while requests came."""

    name: str
    workers: int
    # Share of the compute slots' time: of all workers, of the idlest and of the busiest one.
    utilisation: float
    utilisation_min: float
    utilisation_max: float
    # Units in an average forward of those that may be shared.
    batch_size: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What a run comes to."""

    seed: int
    history: str
    virtual_seconds: float
    requests: int
    inputs: int
    decisions: int
    units: int
    batches: int
    windows: int
    restarts: int
    preemptions: int
    snapshots: int
    yields: int
    device_seconds: float
    # Device-seconds of steps that had run before.
    repeated_seconds: float
    queue_mean: float
    queue_max: int
    # Mean of |predicted - measured| / measured over batches: in the first and the last half.
    cost_error_early: float
    cost_error_late: float
    # Device-seconds of each tenant while requests come.
    tenants: dict[str, float]
    faults: dict[str, int]
    classes: tuple[ClassFigures, ...]
    pools: tuple[PoolFigures, ...]

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


class Figures:
    """Collects while a world runs."""

    def __init__(self, trace: Trace, models: SimulatedModels) -> None:
        self._trace = trace
        self._models = models
        self._requests: dict[str, _Seen] = {}
        self.samples = Samples(trace.duration_s)
        self.pools = {
            name: PoolSeries(name, pool.compute_slots, trace.duration_s)
            for name, pool in trace.pools.items()
        }
        self._counts: dict[type, int] = {}
        self._errors: list[float] = []
        self._tenants: dict[str, float] = {}
        self._units = self._windows = 0
        self._device_s = self._repeated_s = 0.0
        self.faults: dict[str, int] = {}
        self.virtual_s = 0.0

    # -- what happens --------------------------------------------------------------------

    def accepted(self, arrival: Arrival) -> None:
        """A request came."""
        spec = arrival.spec
        self._requests[spec.request_id] = _Seen(arrival.class_name, spec, arrival.at_us)

    def take(self, entry: Entry) -> None:
        """An input was decided on."""
        event = entry.event
        if isinstance(event, BatchExecuted) and event.measured_seconds > 0:
            # A window is predicted as a whole and may end early.
            share = event.forwards or 1
            predicted = event.predicted_seconds
            if share == 1 and predicted:
                error = abs(predicted - event.measured_seconds) / event.measured_seconds
                self._errors.append(min(1.0, error))
        for decision in entry.decisions:
            self._count(decision, entry.at_us)

    def worked(self, worker: SimulatedWorker, run: BatchRun, seconds: float, now_s: float) -> None:
        """A step of a batch has run on a worker."""
        claims = run.claims
        self._units += len(claims)
        if run.command.kind == "artifact_write" or not claims:
            return
        share = seconds / len(claims)
        self._device_s += seconds
        shared = claims[0].loop is not None and claims[0].loop.run.max_batch > 1
        self.pools[worker.pool_name].worked(
            worker.worker_id, now_s - seconds, now_s, len(claims) if shared else 0
        )
        for claim in claims:
            seen = self._requests[claim.ref.request_id]
            if now_s <= self._trace.duration_s:
                tenant = seen.spec.tenant_id
                self._tenants[tenant] = self._tenants.get(tenant, 0.0) + share
            most = seen.ran.get(claim.ref.node_id, 0)
            if claim.index < most:
                self._repeated_s += share
            else:
                seen.ran[claim.ref.node_id] = claim.index + 1

    def sample(self, now_s: float, queued: int, live: int) -> None:
        """How long the queue is."""
        self.samples.add(now_s, queued, live)

    def joined(self, worker: SimulatedWorker, now_s: float) -> None:
        """A worker's process began."""
        self.pools[worker.pool_name].joined(worker.worker_id, now_s)

    def left(self, worker: SimulatedWorker, now_s: float) -> None:
        """A worker's process ended."""
        self.pools[worker.pool_name].left(worker.worker_id, now_s)

    def finish(self, now_s: float, faults: dict[str, int]) -> None:
        """The world has come to its end."""
        self.virtual_s = now_s
        self.faults = dict(faults)
        for pool in self.pools.values():
            pool.finish(now_s)

    def _count(self, decision: Decision, at_us: int) -> None:
        kind = type(decision)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        match decision:
            case StartRequest():
                seen = self._requests[decision.request_id]
                if seen.started_us is None:
                    seen.started_us = at_us
            case CompleteRequest() | CancelRequest() | FailRequest():
                seen = self._requests[decision.request_id]
                seen.ended_us = at_us
                seen.ended_as = "completed"
                if isinstance(decision, CancelRequest):
                    seen.ended_as = "cancelled"
                elif isinstance(decision, FailRequest):
                    seen.ended_as = decision.error.reason
            case DispatchBatch() if decision.window > 1:
                self._windows += 1
            case _:
                pass

    # -- what it comes to ----------------------------------------------------------------

    def latencies(self) -> dict[str, list[float]]:
        """Class to the seconds that its completed requests took, in order."""
        found: dict[str, list[float]] = {name: [] for name in self._trace.classes}
        for seen in self._requests.values():
            if seen.ended_as == "completed" and seen.ended_us is not None:
                found[seen.class_name].append((seen.ended_us - seen.accepted_us) / MICROSECONDS)
        return {name: sorted(values) for name, values in found.items()}

    def times(self) -> tuple[list[float], list[float]]:
        """The seconds that requests waited for their first unit, and that completed ones took."""
        waits, totals = [], []
        for seen in self._requests.values():
            if seen.started_us is not None:
                waits.append((seen.started_us - seen.accepted_us) / MICROSECONDS)
            if seen.ended_as == "completed" and seen.ended_us is not None:
                totals.append((seen.ended_us - seen.accepted_us) / MICROSECONDS)
        return sorted(waits), sorted(totals)

    def summary(self, seed: int, history: str, inputs: int, decisions: int) -> RunFigures:
        """All of it."""
        half = len(self._errors) // 2
        return RunFigures(
            seed=seed,
            history=history,
            virtual_seconds=self.virtual_s,
            requests=len(self._requests),
            inputs=inputs,
            decisions=decisions,
            units=self._units,
            batches=self._counts.get(DispatchBatch, 0),
            windows=self._windows,
            restarts=self._counts.get(RestartRequest, 0),
            preemptions=self._counts.get(PreemptRequest, 0),
            snapshots=self._counts.get(SnapshotRequest, 0),
            yields=self._counts.get(YieldBatch, 0),
            device_seconds=self._device_s,
            repeated_seconds=self._repeated_s,
            queue_mean=self.samples.queue_mean,
            queue_max=self.samples.queue_max,
            cost_error_early=_mean(self._errors[:half]),
            cost_error_late=_mean(self._errors[half:]),
            tenants=dict(sorted(self._tenants.items())),
            faults=dict(sorted(self.faults.items())),
            classes=tuple(self._class(name) for name in self._trace.classes),
            pools=tuple(self._pool(name) for name in self._trace.pools),
        )

    def _class(self, name: str) -> ClassFigures:
        requests = [seen for seen in self._requests.values() if seen.class_name == name]
        ends = [seen.ended_as for seen in requests]
        waits, completions = [], []
        misses = 0
        for seen in requests:
            if seen.started_us is not None:
                waits.append((seen.started_us - seen.accepted_us) / MICROSECONDS)
            if seen.ended_as == "completed" and seen.ended_us is not None:
                completions.append((seen.ended_us - seen.accepted_us) / MICROSECONDS)
            misses += _missed(seen)
        completed, cancelled = ends.count("completed"), ends.count("cancelled")
        return ClassFigures(
            name=name,
            accepted=len(requests),
            completed=completed,
            failed=len(requests) - completed - cancelled,
            cancelled=cancelled,
            deadline_misses=misses,
            deadlines=sum(seen.spec.deadline is not None for seen in requests),
            wait=_spread(waits),
            completion=_spread(completions),
        )

    def _pool(self, name: str) -> PoolFigures:
        pool = self.pools[name]
        shares = pool.utilisations()
        return PoolFigures(
            name=name,
            workers=self._trace.pools[name].count,
            utilisation=_mean(shares),
            utilisation_min=min(shares, default=0.0),
            utilisation_max=max(shares, default=0.0),
            batch_size=pool.batch_size,
        )


def _missed(seen: _Seen) -> bool:
    if seen.spec.deadline is None:
        return False
    if seen.ended_as == "DEADLINE_EXCEEDED":
        return True
    if seen.ended_as != "completed" or seen.ended_us is None:
        return False
    return seen.ended_us / MICROSECONDS > (seen.spec.deadline - START).total_seconds()


def _spread(values: list[float]) -> Spread:
    values = sorted(values)
    p50, p95, p99 = (percentile(values, share) for share in _PERCENTILES)
    return Spread(p50=p50, p95=p95, p99=p99, mean=_mean(values), most=values[-1] if values else 0.0)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
