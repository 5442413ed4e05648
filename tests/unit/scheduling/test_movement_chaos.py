"""Whatever moves, every request ends once and nothing leaks."""

import random
from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.effects import TERMINAL
from fastvideo.scheduling.events import (
    PreemptRequest,
    QueueRequest,
    RestartRequest,
)
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.snapshot import SchedulerSnapshot
from tests.unit.scheduling.moving import Moving
from tests.unit.scheduling.world import Catalog

CHAOS = SchedulingPolicy(
    resident_requests_max=2,
    attempts_max=5,
    snapshot_seconds_min=0.0,
    snapshot_seconds_guess=0.001,
    snapshot_overhead_max=0.2,
    residency_seconds_min=0.05,
    drain_seconds_max=0.1,
)


class Chaos(Moving):
    """A seed decides what happens next."""

    def __init__(self, seed: int) -> None:
        super().__init__(policy=CHAOS)
        self.random = random.Random(seed)
        self.submitted = 0
        self.attached = 0

    def happen(self, times: int) -> None:
        for _ in range(times):
            self.random.choice(
                [self.come] * 2 + [self.step] * 12 + [self.go, self.arrive, self.time, self.stop]
            )()

    def come(self) -> None:
        if self.submitted < 10:
            self.submitted += 1
            self.submit(
                f"r{self.submitted}",
                steps=self.random.randint(1, 9),
                priority=self.random.randint(0, 2),
            )

    def arrive(self) -> None:
        if len(self.workers) < 3:
            self.attached += 1
            self.attach(f"w{self.attached}")

    def go(self) -> None:
        if self.workers and self.random.random() < 0.3:
            self.lose(self.random.choice(sorted(self.workers)))

    def stop(self) -> None:
        if self.workers and self.random.random() < 0.3:
            self.drain(self.random.choice(sorted(self.workers)))
        self.cannot_save = self.random.choice(["", "", "", "BROKEN"])
        self.cannot_restore = self.random.choice(["", "", "", "GONE"])

    def time(self) -> None:
        self.tick(self.random.choice([0.01, 0.1, 3.0]))

    def rest(self) -> None:
        for _ in range(30):
            self.attached += 1
            self.attach(f"w{self.attached}")
            self.run()
            if not self.core.live_requests:
                return


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_whatever_moves_every_request_ends_once_and_nothing_leaks(seed):
    world = Chaos(seed)
    world.happen(200)
    world.rest()
    assert world.core.live_requests == 0
    assert world.reserved() == {}
    ends = Counter(d.request_id for d in world.decisions if isinstance(d, TERMINAL))
    assert ends == Counter(f"r{n}" for n in range(1, world.submitted + 1))
    for worker in world.workers.values():
        assert worker.held == {}
    asides = Counter(d.request_id for d in world.made(PreemptRequest) if "priority" in d.reason)
    assert all(times <= CHAOS.preemptions_max for times in asides.values())
    # A move is no loss.
    assert all(
        d.reason.startswith(("set aside", "worker", "the snapshot"))
        for d in world.made(RestartRequest)
    )


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32), st.integers(0, 150))
def test_a_restored_core_moves_requests_as_the_original_does(seed, times):
    world = Chaos(seed)
    world.happen(times)
    data = world.core.snapshot().encode()
    restored = SchedulerCore.restore(Catalog(), CHAOS, SchedulerSnapshot.decode(data))
    follower = SchedulerCore(Catalog(), policy=CHAOS, epoch=1)
    for event, now, decisions in world.history:
        follower.replay(event, decisions, now)
    assert follower.digest() == world.core.digest() == restored.digest()
    before = len(world.history)
    world.happen(80)
    for event, now, decisions in world.history[before:]:
        assert restored.decide(event, now) == decisions
        # What waiting requests were told of their place is not made out of old decisions.
        assert but_news(follower.decide(event, now)) == but_news(decisions)


def but_news(decisions):
    return [decision for decision in decisions if not isinstance(decision, QueueRequest)]
