"""Whatever happens, in whatever order: the core keeps its promises."""

import random
from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastvideo.requests.types import ErrorDetail
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.effects import TERMINAL
from fastvideo.scheduling.events import BatchExecuted, DispatchBatch, LoopFailed, LoopPrepared
from fastvideo.scheduling.inputs import RequestSubmitted
from fastvideo.scheduling.policy import SchedulingPolicy
from tests.unit.scheduling.world import Catalog, World, request

POLICY = SchedulingPolicy(resident_requests_max=3, attempts_max=4)

seeds = st.integers(min_value=0, max_value=2**32)
worlds = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


class Chaos(World):
    """A world in which a seed decides what happens next."""

    def __init__(self, seed: int) -> None:
        super().__init__(policy=POLICY)
        self.random = random.Random(seed)
        self.batch_seconds = 0.03
        self.past: list[BatchExecuted | LoopPrepared] = []
        self.submitted = 0

    def happen(self, times: int) -> None:
        """Let things happen; check after each what must always hold."""
        acts = {
            self.new_request: 3,
            self.new_worker: 1,
            self.lose_one: 1,
            self.prepare_one: 8,
            self.execute_one: 12,
            self.cancel_one: 1,
            self.report_again: 2,
            self.fail_a_unit: 1,
            self.fail_a_loop: 1,
            self.time_passes: 1,
        }
        for _ in range(times):
            (act,) = self.random.choices(list(acts), list(acts.values()))
            act()
            self.check()

    def check(self) -> None:
        running: Counter[str] = Counter()
        for view in self.core.workers:
            worker = self.workers[view.worker_id]
            assert view.batches_in_flight == len(worker.batches)
            compute = [b for b in worker.batches.values() if b.kind != "artifact_write"]
            assert len(compute) <= 1
            for batch in worker.batches.values():
                running.update(batch.unit_ids)
                assert len(set(batch.unit_ids)) == len(batch.unit_ids)
        assert all(count == 1 for count in running.values()), "a unit was granted twice"

    def new_request(self) -> None:
        if self.submitted < 12:
            self.submitted += 1
            deadline = self.now.timestamp() - 1_767_225_600 + self.random.choice([0.1, 5.0])
            self.submit(
                f"r{self.submitted}",
                steps=self.random.randint(1, 6),
                priority=self.random.randint(-1, 1),
                deadline_s=deadline if self.random.random() < 0.2 else None,
                session=self.random.choice(["", "s1"]),
            )

    def new_worker(self) -> None:
        away = sorted({"w1", "w2", "w3"} - self.workers.keys())
        if away:
            # A worker that was lost may come back under its name.
            self.attach(self.random.choice(away), memory=self.random.choice([10, 25, 1000]))

    def lose_one(self) -> None:
        if self.workers and self.random.random() < 0.3:
            self.lose(self.random.choice(sorted(self.workers)))

    def prepare_one(self) -> None:
        able = [w for w in self.workers.values() if w.preparing]
        if able:
            worker = self.random.choice(able)
            self.random.shuffle(worker.preparing)
            self.prepare(worker.worker_id)
            told = self.history[-1][0]
            assert isinstance(told, BatchExecuted | LoopPrepared)
            self.past.append(told)

    def _some_batch(self) -> BatchExecuted | None:
        able = [w for w in self.workers.values() if w.batches]
        if not able:
            return None
        worker = self.random.choice(able)
        report = self.execution(worker.worker_id, self.random.choice(sorted(worker.batches)))
        self.past.append(report)
        return report

    def execute_one(self) -> None:
        report = self._some_batch()
        if report is not None:
            self.tell(report, after_s=self.batch_seconds)

    def fail_a_unit(self) -> None:
        report = self._some_batch() if self.random.random() < 0.3 else None
        if report is not None:
            first, *rest = report.results
            failed = replace(
                first, next_plan=None, loop_result=None, error=ErrorDetail(reason="BROKEN")
            )
            self.tell(replace(report, results=(failed, *rest)))

    def fail_a_loop(self) -> None:
        able = [w for w in self.workers.values() if w.preparing]
        if able and self.random.random() < 0.2:
            told = able[0].preparing.pop()
            self.tell(
                LoopFailed(
                    worker_id=able[0].worker_id, loop=told.loop, error=ErrorDetail(reason="BROKEN")
                )
            )

    def cancel_one(self) -> None:
        if self.submitted:
            self.cancel(f"r{self.random.randint(1, self.submitted)}")

    def report_again(self) -> None:
        if self.past:
            assert self.tell(self.random.choice(self.past)) == (), "an old report had effect"

    def time_passes(self) -> None:
        self.tick(self.random.choice([0.01, 1.0, 6.0]))

    def come_to_rest(self) -> None:
        for n in range(20):
            self.attach(f"fresh{n}")
            self.run()
            if not self.core.live_requests:
                return


@worlds
@given(seeds)
def test_every_request_ends_once_and_nothing_leaks(seed):
    world = Chaos(seed)
    world.happen(150)
    world.come_to_rest()
    assert world.core.live_requests == 0
    assert world.core.queued_requests == 0
    assert world.reserved() == {}
    ends = Counter(d.request_id for d in world.decisions if isinstance(d, TERMINAL))
    assert ends == Counter(f"r{n}" for n in range(1, world.submitted + 1))
    for worker in world.workers.values():
        assert worker.held == {}, "a worker still holds what nobody needs"


@worlds
@given(seeds)
def test_nothing_is_decided_for_a_request_after_its_end(seed):
    world = Chaos(seed)
    world.happen(150)
    ended: set[str] = set()
    for decision in world.decisions:
        refs = decision.loops if isinstance(decision, DispatchBatch) else ()
        names = {ref.request_id for ref in refs} | {getattr(decision, "request_id", "")}
        assert not names & ended
        if isinstance(decision, TERMINAL):
            ended.add(decision.request_id)


@worlds
@given(seeds)
def test_the_same_inputs_give_the_same_decisions(seed):
    world = Chaos(seed)
    world.happen(120)
    again = SchedulerCore(Catalog(), policy=POLICY, epoch=1)
    for event, now, decisions in world.history:
        assert again.decide(event, now) == decisions


@worlds
@given(seeds)
def test_taking_in_old_decisions_gives_the_state_that_choosing_gave(seed):
    world = Chaos(seed)
    world.happen(120)
    follower = SchedulerCore(Catalog(), policy=POLICY, epoch=1)
    for event, now, decisions in world.history:
        follower.replay(event, decisions, now)
    assert follower.reserved == world.core.reserved
    assert follower.workers == world.core.workers
    assert follower.cost_model == world.core.cost_model
    # Both go on alike.
    before = len(world.history)
    for n in range(5):
        world.submitted += 1
        world.tell(RequestSubmitted(spec=request(f"r{world.submitted}", priority=n)))
        world.specs[f"r{world.submitted}"] = request(f"r{world.submitted}", priority=n)
    world.come_to_rest()
    for event, now, decisions in world.history[before:]:
        assert follower.decide(event, now) == decisions
