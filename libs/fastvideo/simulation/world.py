"""A simulated world: workers, a shard, requests and faults, driven by one virtual clock."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from fastvideo.requests.types import RequestSpec
from fastvideo.simulation.agenda import MICROSECONDS, Agenda, microseconds
from fastvideo.simulation.arrivals import Arrival, arrivals
from fastvideo.simulation.batches import BatchRun
from fastvideo.simulation.checker import Checker
from fastvideo.simulation.faults import Faults
from fastvideo.simulation.figures import Figures, RunFigures
from fastvideo.simulation.history import History
from fastvideo.simulation.leader import Entry, Note
from fastvideo.simulation.reading import Scenario
from fastvideo.simulation.shard import Shard
from fastvideo.simulation.snapshots import SnapshotStore
from fastvideo.simulation.witness import InvariantBroken, Unsettled
from fastvideo.simulation.worker import SimulatedWorker

_SAMPLES: Final = 240
_RETRY_S: Final = 0.2
# All reservations are compared after every input where there are few workers, else now and then.
_COMPARED_WORKERS: Final = 4
_PROGRESS_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    virtual_s: float
    requests: int
    ended: int
    inputs: int


class World:
    """One scenario under one seed."""

    def __init__(self, scenario: Scenario, seed: int, *, kept_lines: int = 0) -> None:
        self.scenario = scenario
        self.seed = seed
        trace = scenario.trace
        self.agenda = Agenda()
        self.history = History(kept_lines)
        self.figures = Figures(trace, scenario.models)
        self.checker = Checker(scenario.models, trace.policy)
        self._specs: dict[str, RequestSpec] = {}
        self._store = SnapshotStore()
        self._random = Random(f"{seed}/network")
        self.workers = list(self._make_workers())
        self.shard = Shard(
            models=scenario.models,
            policy=trace.policy,
            agenda=self.agenda,
            network=trace.network,
            faults=trace.faults,
            random=self._random,
            note=self._note,
            rewind=self._rewind,
        )
        self.faults = Faults(
            trace.faults,
            trace.duration_s,
            agenda=self.agenda,
            seed=seed,
            workers=self.workers,
            victims=self,
        )
        self._arrivals = arrivals(trace, scenario.models, scenario.recordings, seed)
        self._more = True
        self._compare_every = max(1, len(self.workers) // _COMPARED_WORKERS)
        self._listeners: list[Note] = []

    # -- running -------------------------------------------------------------------------

    def run(
        self,
        *,
        until_s: float | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """Let the world go on to its end, or to a moment.

        Raises InvariantBroken, saying when and in which world, as soon as something does not
        hold; Unsettled, after which there is a summary, when requests had not ended by the end.
        """
        try:
            self._begin()
            self._go_on(None if until_s is None else microseconds(until_s), progress)
            self.figures.finish(self.agenda.now_s, self.faults.happened)
            if until_s is None:
                self._finish()
        except InvariantBroken as broken:
            raise self._told(broken) from broken

    def _begin(self) -> None:
        self.shard.lead()
        for worker in self.workers:
            self.agenda.at(microseconds(worker.pool.joins_at_s), self._join, worker)
            if worker.pool.drains_at_s is not None:
                at_us = microseconds(worker.pool.drains_at_s)
                self.agenda.at(at_us, self.drain_worker, worker, float("inf"), None)
        self.faults.begin()
        self._next_arrival()
        self._sample()

    def _go_on(self, until_us: int | None, progress: Callable[[Progress], None] | None) -> None:
        trace = self.scenario.trace
        latest_us = microseconds(trace.duration_s + trace.settle_s)
        told_s = time.monotonic()
        steps = 0
        while (next_us := self.agenda.next_us()) is not None:
            if until_us is not None and next_us > until_us:
                return
            if next_us > latest_us:
                self._check_settled()
                break
            self.agenda.step()
            steps += 1
            if progress is not None and steps % 1024 == 0:
                now_s = time.monotonic()
                if now_s - told_s >= _PROGRESS_EVERY_S:
                    told_s = now_s
                    progress(self.progress())

    def progress(self) -> Progress:
        """How far it is."""
        known = len(self.checker.requests)
        return Progress(self.agenda.now_s, known, known - self.checker.live, self.history.inputs)

    def summary(self) -> RunFigures:
        """What the run came to."""
        history = self.history
        return self.figures.summary(self.seed, history.digest, history.inputs, history.decisions)

    def _check_settled(self) -> None:
        """The time is over and something would still happen: all must have ended by now."""
        known, live = len(self.checker.requests), self.checker.live
        if not live:
            return
        self.figures.finish(self.agenda.now_s, self.faults.happened)
        trace = self.scenario.trace
        raise Unsettled(
            f"{live} of {known} requests had not ended {trace.settle_s:g} s (settle_s) after the "
            f"last could come: too much for these workers, or they are held up"
        )

    def _finish(self) -> None:
        self.checker.finish()
        for worker in self.workers:
            if not worker.is_idle:
                raise InvariantBroken(f"worker {worker.worker_id} still holds {worker.held()}")

    def _told(self, broken: InvariantBroken) -> InvariantBroken:
        at_s = self.agenda.now_us / MICROSECONDS
        return type(broken)(
            f"at {at_s:.6f} s, input {self.history.inputs}, seed {self.seed}: {broken.message}",
            subject=self.scenario.source,
            attributes={
                "at_s": f"{at_s:.6f}",
                "seed": str(self.seed),
                "replay": f"fastvideo simulate {self.scenario.arguments} --seed {self.seed} "
                f"--until {at_s:.6f} --history 40",
            },
        )

    # -- requests ------------------------------------------------------------------------

    def _next_arrival(self) -> None:
        arrival = next(self._arrivals, None)
        if arrival is None:
            self._more = False
            return
        self.agenda.at(arrival.at_us, self._arrive, arrival)

    def _arrive(self, arrival: Arrival) -> None:
        spec = arrival.spec
        self._specs[spec.request_id] = spec
        self.figures.accepted(arrival)
        if arrival.cancel_at_us is not None:
            self.agenda.at(arrival.cancel_at_us, self.shard.cancel, spec.request_id)
        self.shard.submit(spec)
        self._next_arrival()

    # -- what is noted -------------------------------------------------------------------

    def listen(self, listener: Note) -> None:
        """Be told of every entry."""
        self._listeners.append(listener)

    def _note(self, entry: Entry) -> None:
        for listener in self._listeners:
            listener(entry)
        self.history.take(entry)
        self.figures.take(entry)
        compared = self.history.inputs % self._compare_every == 0
        self.checker.step(
            entry.event,
            entry.decisions,
            entry.now,
            entry.at_us,
            self._reserved if compared else None,
        )

    def _reserved(self) -> Mapping[str, float]:
        core = self.shard.core
        return core.reserved if core is not None else {}

    def _rewind(self, entries: Sequence[Entry]) -> None:
        """Go back to what is in the log."""
        clock_back_us = self.checker.clock_back_us
        self.checker = Checker(self.scenario.models, self.scenario.trace.policy)
        for entry in entries:
            self.checker.step(entry.event, entry.decisions, entry.now, entry.at_us, None)
        self.checker.clock_back_us = clock_back_us

    def _sample(self) -> None:
        core = self.shard.core
        if core is not None:
            self.figures.sample(self.agenda.now_s, core.queued_requests, core.live_requests)
        duration_s = self.scenario.trace.duration_s
        if self._more or self.agenda.now_s < duration_s or self.checker.live:
            self.agenda.after(duration_s / _SAMPLES, self._sample)

    def worked(self, worker: SimulatedWorker, run: BatchRun, seconds: float) -> None:
        """A step of a batch has run."""
        self.figures.worked(worker, run, seconds, self.agenda.now_s)

    # -- workers -------------------------------------------------------------------------

    def _make_workers(self) -> Iterator[SimulatedWorker]:
        trace = self.scenario.trace
        for name, pool in trace.pools.items():
            for index in range(pool.count):
                worker_id = f"{name}-{index}"
                yield SimulatedWorker(
                    worker_id,
                    name,
                    pool,
                    pool.speeds[index % len(pool.speeds)],
                    agenda=self.agenda,
                    models=self.scenario.models,
                    store=self._store,
                    faults=trace.faults,
                    noise=trace.noise,
                    random=Random(f"{self.seed}/workers/{worker_id}"),
                    meter=self,
                    specs=self._specs,
                )

    def _join(self, worker: SimulatedWorker) -> None:
        """A process begins and announces itself."""
        if worker.process is None:
            worker.start()
            self.figures.joined(worker, self.agenda.now_s)
            self._announce(worker)

    def _announce(self, worker: SimulatedWorker) -> None:
        """Be dialled by who leads; again and again while nobody does."""
        process = worker.process
        if process is None:
            return
        if self.agenda.now_us < worker.paused_until_us:
            self.agenda.at(worker.paused_until_us, self._announce, worker)
        elif self.shard.leader is None:
            self.agenda.after(_RETRY_S, self._announce, worker)
        else:
            self.shard.leader.dial(worker)

    def _redial(self, worker: SimulatedWorker) -> None:
        """Its stream has ended."""
        worker.left_alone()
        delay_s = self._random.uniform(*self.scenario.trace.network.redial_s)
        self.agenda.after(delay_s, self._announce, worker)

    def _end_link(self, worker: SimulatedWorker, reason: str) -> None:
        leader = self.shard.leader
        link = leader.links.get(worker.worker_id) if leader is not None else None
        if leader is not None and link is not None:
            leader.lose(link, reason)

    # -- faults (`faults.Victims`) -------------------------------------------------------

    def lose_worker(self, worker: SimulatedWorker, back_after_s: float, silent: bool) -> None:
        """Its process dies."""
        leader = self.shard.leader
        link = leader.links.get(worker.worker_id) if leader is not None else None
        worker.kill()
        self.figures.left(worker, self.agenda.now_s)
        self.agenda.after(back_after_s, self._join, worker)
        if leader is not None and link is not None:
            after_s = self.scenario.trace.network.silence_s if silent else 0.0
            self.agenda.after(after_s, leader.lose, link, "its process ended")

    def pause_worker(self, worker: SimulatedWorker, for_s: float) -> None:
        """It stands still."""
        until_us = self.agenda.now_us + microseconds(for_s)
        worker.paused_until_us = max(worker.paused_until_us, until_us)
        leader = self.shard.leader
        link = leader.links.get(worker.worker_id) if leader is not None else None
        silence_s = self.scenario.trace.network.silence_s
        if leader is not None and link is not None and for_s > silence_s:
            self.agenda.after(silence_s, self._silent, worker, link)

    def _silent(self, worker: SimulatedWorker, link: object) -> None:
        leader = self.shard.leader
        if leader is None or leader.links.get(worker.worker_id) is not link:
            return
        self._end_link(worker, "it was silent")
        self.agenda.at(worker.paused_until_us, self._redial, worker)

    def break_stream(self, worker: SimulatedWorker) -> None:
        """Its stream ends; both sides live."""
        leader = self.shard.leader
        if leader is not None and worker.worker_id in leader.links:
            self._end_link(worker, "the stream broke")
            self._redial(worker)

    def drain_worker(
        self, worker: SimulatedWorker, grace_s: float, back_after_s: float | None
    ) -> None:
        """It is told to end, ends what it has, and perhaps begins anew."""
        process = worker.process
        if process is None or process.draining:
            return
        worker.drain()
        self._await_idle(worker, process, self.agenda.now_s + grace_s, back_after_s)

    def _await_idle(
        self,
        worker: SimulatedWorker,
        process: object,
        latest_s: float,
        back_after_s: float | None,
    ) -> None:
        if worker.process is not process:
            return
        if not worker.is_idle and self.agenda.now_s < latest_s:
            call = self._await_idle
            self.agenda.after(_RETRY_S, call, worker, process, latest_s, back_after_s)
            return
        self._end_link(worker, "it ended")
        worker.kill()
        self.figures.left(worker, self.agenda.now_s)
        if back_after_s is not None:
            self.agenda.after(back_after_s, self._join, worker)

    def switch_leader(self, away_s: float) -> None:
        """The leader dies, and later another leads."""
        leader = self.shard.leader
        if leader is None:
            return
        linked = [link.worker for link in leader.links.values()]
        self.shard.fail()
        self.agenda.after(away_s, self.shard.lead)
        for worker in linked:
            self._redial(worker)

    def jump_clock(self, by_s: float) -> None:
        """The leader's clock jumps."""
        by_us = microseconds(by_s)
        self.shard.clock.skew_us += by_us
        self.checker.clock_back_us += max(0, -by_us)
        if self.shard.leader is not None:
            self.shard.leader.clock_jumped()
