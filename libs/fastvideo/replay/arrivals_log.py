"""What came to a shard and what became of it, as a simulation needs it: pure."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fastvideo.deployment.catalog import Catalog
from fastvideo.deployment.scheduling_policy import logged_policy
from fastvideo.explain.workers import rounds_of
from fastvideo.replay.costs import StepCosts, unit_priced
from fastvideo.replay.gently import gently
from fastvideo.replay.shard_entries import ShardEntry
from fastvideo.replay.types import PolicyFigures
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.effects import TERMINAL
from fastvideo.scheduling.events import (
    BatchExecuted,
    CompleteRequest,
    Decision,
    LeaderElected,
    LoopPrepared,
    StartRequest,
    WorkerAttached,
    WorkerLost,
)
from fastvideo.scheduling.inputs import CancelRequested, RequestSubmitted
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import OFF_STEP_PATH, CancelScopeKind
from fastvideo.simulation.models import SimulatedModels
from fastvideo.simulation.reading import Scenario
from fastvideo.simulation.recorded import RecordedRequest
from fastvideo.simulation.series import percentile
from fastvideo.simulation.trace import ClassTrace, PoolTrace, Recorded, Trace

REQUESTS_MAX: Final = 5_000
"""The newest requests are simulated; more cost more than they tell."""

BATCHES_MAX: Final = 500_000

_PREPARE_S: Final = 0.002


@dataclass(slots=True)
class _Request:
    """What became of one request."""

    spec: RequestSpec
    accepted_at: datetime
    cancelled_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None


@dataclass(slots=True)
class _Presence:
    """A worker, and when it was there."""

    attached: WorkerAttached
    since: datetime
    until: datetime | None = None


class ArrivalsLog:
    """Takes in a shard's entries in order."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._cards = {entry.card.model_id: list(entry.card.loops) for entry in catalog.entries}
        models = unit_priced(list(self._cards), self._cards)
        self._priced = SimulatedModels(models, "the log", catalog)
        self._costs = StepCosts(self._priced)
        self.requests: OrderedDict[str, _Request] = OrderedDict()
        self._presences: list[_Presence] = []
        self._here: dict[str, _Presence] = {}
        # When reported, compute seconds, forwards that may be shared, and units in them.
        self._batches: deque[tuple[datetime, float, int, int]] = deque(maxlen=BATCHES_MAX)
        self._prepared = 0
        self._prepare_s = 0.0
        self._last_at: datetime | None = None
        self.left_out = 0
        # Of the newest leader.
        self.policy = SchedulingPolicy()

    def take(self, entries: Iterable[ShardEntry]) -> None:
        """Take in some entries."""
        for entry in gently(entries):
            at = entry.decided.at
            self._last_at = at
            match entry.event:
                case RequestSubmitted(spec=spec):
                    self._submitted(spec, entry.event.accepted_at or at)
                case CancelRequested(scope=scope) if scope.kind is CancelScopeKind.REQUEST:
                    known = self.requests.get(scope.target_id)
                    if known is not None:
                        known.cancelled_at = known.cancelled_at or at
                case WorkerAttached():
                    self._attached(entry.event, at)
                case WorkerLost(worker_id=worker_id):
                    self._gone(worker_id, at)
                case LeaderElected():
                    self._elected(entry.event, at)
                case LoopPrepared(seconds=seconds):
                    self._prepared += 1
                    self._prepare_s += seconds
                case BatchExecuted():
                    self._executed(entry.event, at)
            for decision in entry.decided.decisions:
                self._decided(decision, at)

    # -- what happened -------------------------------------------------------------------

    def _submitted(self, spec: RequestSpec, accepted_at: datetime) -> None:
        if spec.model_id not in self._cards:
            self.left_out += 1
            return
        self.requests.setdefault(spec.request_id, _Request(spec, accepted_at))
        if len(self.requests) > REQUESTS_MAX:
            self.requests.popitem(last=False)
            self.left_out += 1

    def _attached(self, event: WorkerAttached, at: datetime) -> None:
        self._gone(event.worker_id, at)
        presence = _Presence(event, at)
        self._here[event.worker_id] = presence
        self._presences.append(presence)

    def _gone(self, worker_id: str, at: datetime) -> None:
        known = self._here.pop(worker_id, None)
        if known is not None:
            known.until = at

    def _elected(self, event: LeaderElected, at: datetime) -> None:
        if event.policy:
            self.policy = logged_policy(event.policy, f"the policy of epoch {event.epoch}")
        if event.anew:
            for worker_id in list(self._here):
                self._gone(worker_id, at)

    def _executed(self, event: BatchExecuted, at: datetime) -> None:
        rounds = rounds_of(event.results)
        shared = units = 0
        for together in rounds:
            done = [result for result in together if result.error is None]
            if not done:
                continue
            seconds = max(result.measured_seconds for result in done)
            seconds = seconds or event.measured_seconds / len(rounds)
            named = {
                result.loop.request_id: self.requests[result.loop.request_id].spec
                for result in done
                if result.loop.request_id in self.requests
            }
            if self._costs.step(done, named, seconds):
                shared += 1
                units += len(done)
        if event.kind not in OFF_STEP_PATH:
            self._batches.append((at, event.measured_seconds, shared, units))

    def _decided(self, decision: Decision, at: datetime) -> None:
        if not isinstance(decision, (StartRequest, *TERMINAL)):
            return
        known = self.requests.get(decision.request_id)
        if known is None:
            return
        if isinstance(decision, StartRequest):
            known.started_at = known.started_at or at
        elif isinstance(decision, CompleteRequest):
            known.completed_at = at

    # -- what it comes to ----------------------------------------------------------------

    @property
    def _begin(self) -> datetime:
        return min(known.accepted_at for known in self.requests.values())

    @property
    def seconds(self) -> float:
        """From the first acceptance to the last thing that happened."""
        assert self._last_at is not None
        return (self._last_at - self._begin).total_seconds()

    def figures(self, name: str) -> PolicyFigures:
        """What the log says."""
        known = self.requests.values()
        waits = sorted(
            (one.started_at - one.accepted_at).total_seconds() for one in known if one.started_at
        )
        totals = sorted(
            (one.completed_at - one.accepted_at).total_seconds()
            for one in known
            if one.completed_at
        )
        begin = self._begin
        batches = [batch for batch in self._batches if batch[0] >= begin]
        busy = sum(batch[1] for batch in batches)
        there = self._slot_seconds(begin)
        forwards = sum(batch[2] for batch in batches)
        return PolicyFigures(
            policy=name,
            requests=len(self.requests),
            wait_seconds_p50=percentile(waits, 0.5),
            wait_seconds_p95=percentile(waits, 0.95),
            total_seconds_p50=percentile(totals, 0.5),
            total_seconds_p95=percentile(totals, 0.95),
            utilisation=min(1.0, busy / there) if there else 0.0,
            mean_batch_size=sum(batch[3] for batch in batches) / forwards if forwards else 0.0,
        )

    def _slot_seconds(self, begin: datetime) -> float:
        assert self._last_at is not None
        total = 0.0
        for presence in self._presences:
            since, until = max(presence.since, begin), presence.until or self._last_at
            slots = max(1, presence.attached.compute_slots)
            total += max(0.0, (until - since).total_seconds()) * slots
        return total

    def scenario(self, policy: SchedulingPolicy) -> Scenario:
        """The same arrivals on the same workers at the same costs, under a policy."""
        prepare_s = self._prepare_s / self._prepared if self._prepared else _PREPARE_S
        used = {known.spec.model_id for known in self.requests.values()}
        priced = self._costs.traces(self._catalog, prepare_s)
        models = {name: trace for name, trace in priced.items() if name in used}
        recordings = self._recordings(set(models))
        classes = {
            name: ClassTrace(
                model=name.partition("/")[0],
                program=name.partition("/")[2],
                arrivals=(Recorded(kind="recorded", file=name),),
            )
            for name in recordings
        }
        last = max((line.at_s for lines in recordings.values() for line in lines), default=0.0)
        trace = Trace(
            duration_s=last + 1.0,
            noise=0.0,
            models=models,
            pools=self._pools(set(models)),
            classes=classes,
            policy=policy,
        )
        simulated = SimulatedModels(models, "the log", self._catalog)
        return Scenario("the log", "the log", trace, simulated, recordings)

    def _recordings(self, models: set[str]) -> dict[str, tuple[RecordedRequest, ...]]:
        begin = self._begin
        found: dict[str, list[RecordedRequest]] = {}
        for known in self.requests.values():
            spec, sampling = known.spec, known.spec.sampling
            if spec.model_id not in models:
                continue
            line = RecordedRequest(
                at_s=(known.accepted_at - begin).total_seconds(),
                width=sampling.width,
                height=sampling.height,
                num_frames=sampling.num_frames,
                steps=sampling.steps,
                guidance_scale=sampling.guidance_scale,
                tenant_id=spec.tenant_id,
                priority=spec.priority,
                deadline_s=_since(spec.deadline, known.accepted_at),
                cancelled_after_s=_since(known.cancelled_at, known.accepted_at),
            )
            found.setdefault(f"{spec.model_id}/{spec.program_id}", []).append(line)
        return {
            name: tuple(sorted(lines, key=lambda line: line.at_s)) for name, lines in found.items()
        }

    def _pools(self, models: set[str]) -> dict[str, PoolTrace]:
        """Each worker that was there while requests came, from when it was."""
        begin = self._begin
        pools: dict[str, PoolTrace] = {}
        for presence in self._presences:
            if presence.until is not None and presence.until < begin:
                continue
            attached = presence.attached
            served = tuple(dict.fromkeys(i.model_id for i in attached.instances))
            served = tuple(name for name in served if name in models)
            if not served or attached.worker_id in pools:
                continue
            pools[attached.worker_id] = PoolTrace(
                count=1,
                models=served,
                compute_slots=max(1, attached.compute_slots),
                io_slots=max(1, attached.io_slots),
                role=attached.role,
                joins_at_s=max(0.0, (presence.since - begin).total_seconds()),
            )
        return pools


def _since(moment: datetime | None, begin: datetime) -> float | None:
    return None if moment is None else max(0.0, (moment - begin).total_seconds())
