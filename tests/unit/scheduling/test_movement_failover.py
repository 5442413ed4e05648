"""Leaders die while requests are saved, set aside and handed over."""

from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fastvideo.requests.types import ErrorDetail
from fastvideo.scheduling.effects import TERMINAL
from fastvideo.scheduling.events import (
    CompleteRequest,
    Decision,
    LoopPrepared,
    PreemptRequest,
    ReleaseRequest,
    RequestSnapshotted,
    RestartRequest,
    SnapshotRequest,
    WorkerAttached,
    WorkerDraining,
)
from fastvideo.scheduling.inputs import SchedulerInput
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import LoopRef, LoopResult, LoopSnapshot, WorkPlan
from tests.unit.scheduling.fleet import Fleet
from tests.unit.scheduling.world import FakeWorker

POLICY = SchedulingPolicy(
    resident_requests_max=2,
    attempts_max=9,
    snapshot_seconds_min=0.0,
    snapshot_seconds_guess=0.001,
    snapshot_overhead_max=0.3,
    residency_seconds_min=0.02,
    drain_seconds_max=0.05,
)


class MovingFleet(Fleet):
    """A fleet whose workers save loops; commands, saves and reports take their time."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, policy=POLICY)
        self.asked: dict[str, list[SnapshotRequest | PreemptRequest]] = {}

    def tell(self, event: SchedulerInput, *, after_s: float = 0.0) -> tuple[Decision, ...]:
        if isinstance(event, WorkerAttached):
            event = replace(event, snapshots=True)
            self.asked[event.worker_id] = []
        return super().tell(event, after_s=after_s)

    def take_command(self, worker: FakeWorker, command: Decision) -> None:
        if isinstance(command, SnapshotRequest | PreemptRequest):
            self.asked[worker.worker_id].append(command)
        else:
            super().take_command(worker, command)
        if isinstance(command, ReleaseRequest):
            mine = self.asked[worker.worker_id]
            mine[:] = [other for other in mine if other.request_id != command.request_id]

    def make(self, worker_id: str) -> bool:
        return self._save(worker_id) or super().make(worker_id)

    def _save(self, worker_id: str) -> bool:
        worker, mine = self.workers[worker_id], self.asked[worker_id]
        if not mine:
            return False
        first = mine[0]
        runs = {ref.request_id for batch in worker.batches.values() for ref in batch.loops}
        runs |= {told.loop.request_id for told in worker.preparing}
        releases = isinstance(first, PreemptRequest)
        if releases and first.request_id in runs:
            return False
        mine.pop(0)
        scope = (first.request_id, first.attempt)
        broken = scope not in worker.held or self.random.random() < 0.1
        event = RequestSnapshotted(
            worker_id=worker_id,
            request_id=first.request_id,
            attempt=first.attempt,
            snapshots=() if broken else self._snapshots(worker, scope),
            seconds=0.001,
            released=releases and not broken,
            error=ErrorDetail(reason="BROKEN") if broken else None,
        )
        if event.released:
            del worker.held[scope]
        self._report(worker_id, event)
        return True

    def _snapshots(self, worker: FakeWorker, scope: tuple[str, int]) -> tuple[LoopSnapshot, ...]:
        saved = []
        for node_id, (units, position) in worker.held[scope].items():
            ref = LoopRef(request_id=scope[0], node_id=node_id, attempt=scope[1])
            ended = position == len(units)
            result = LoopResult(loop=ref, value_names=("x",)) if ended else None
            saved.append(
                LoopSnapshot(
                    loop=ref,
                    loop_id=node_id,
                    ended=ended,
                    state_version=position,
                    steps_done=position,
                    steps=len(units),
                    loop_result=result,
                )
            )
        return tuple(saved)

    def _prepared(self, worker: FakeWorker) -> LoopPrepared:
        saved = worker.preparing[0].restore
        prepared = super()._prepared(worker)
        if saved is None:
            return prepared
        loop = prepared.plan.loop
        nodes = worker.held[(loop.request_id, loop.attempt)]
        units, _ = nodes[loop.node_id]
        nodes[loop.node_id] = (units, saved.state_version)
        plan = WorkPlan(
            loop=loop,
            state_version=saved.state_version,
            units=tuple(units[saved.state_version : saved.state_version + 1]),
        )
        return replace(prepared, plan=plan)


def happen(world: MovingFleet, times: int) -> None:
    for _ in range(times):
        worker_id = world.random.choice(sorted(world.workers))
        chance = world.random.random()
        if chance < 0.07 and world.submitted < 10:
            world.submitted += 1
            name = f"r{world.submitted}"
            steps, priority = world.random.randint(1, 8), world.random.randint(0, 2)
            world.submit(name, steps=steps, priority=priority)
        elif chance < 0.09:
            world.tick(0.05)
        elif chance < 0.1 and world.desks[worker_id].attached:
            world.tell(WorkerDraining(worker_id=worker_id))
        elif chance < 0.4:
            world.arrive(worker_id)
        elif chance < 0.7:
            world.make(worker_id)
        else:
            world.hear(worker_id)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 2**32), st.lists(st.tuples(st.integers(0, 90), st.integers(0, 25)), max_size=4)
)
# A loop was assigned to an attempt that its worker was just setting aside for a dead scheduler.
@example(1045, [(33, 0), (37, 11)])
def test_leaders_die_while_requests_move(seed, terms):
    world = MovingFleet(seed)
    for n in range(3):
        world.attach(f"w{n}")
    for times, lost in terms:
        happen(world, times)
        written = len(world.history) - lost
        world.fail_over(max(0 if world.log else 3, written))
        if world.random.random() < 0.7:
            world.come_back()
    world.come_back()
    for n in range(6):
        world.run()
        if not world.core.live_requests:
            break
        # Those that drain take nobody.
        world.attach(f"more-{n}")
    assert world.core.live_requests == 0
    assert world.reserved() == {}
    decided = [d for _, _, made in [*world.log, *world.history] for d in made]
    ends = Counter(d.request_id for d in decided if isinstance(d, TERMINAL))
    assert ends == Counter(f"r{n}" for n in range(1, world.submitted + 1))
    assert all(isinstance(d, CompleteRequest) for d in decided if isinstance(d, TERMINAL))
    for worker in world.workers.values():
        assert worker.held == {}
    # What was set aside, or whose worker cannot say where it is, goes on from what was saved.
    restarts = [d.reason for d in decided if isinstance(d, RestartRequest)]
    assert all(reason.startswith(("set aside", "worker")) for reason in restarts)
