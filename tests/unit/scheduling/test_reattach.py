"""Leaders and streams die at any moment; every loop that the log knows goes on."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastvideo.scheduling.effects import TERMINAL
from fastvideo.scheduling.events import (
    CompleteRequest,
    RestartRequest,
)
from fastvideo.scheduling.policy import SchedulingPolicy
from tests.unit.scheduling.fleet import Fleet

POLICY = SchedulingPolicy(resident_requests_max=3, attempts_max=4)
seeds = st.integers(min_value=0, max_value=2**32)
worlds = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


def busy(seed: int, workers: int = 2) -> Fleet:
    world = Fleet(seed, policy=POLICY)
    for n in range(workers):
        world.attach(f"w{n}", memory=world.random.choice([25, 1_000]))
    return world


def happen(world: Fleet, times: int, *, cancels: bool = False) -> None:
    """Requests come, messages travel, in an order that the seed decides."""
    for _ in range(times):
        worker_id = world.random.choice(sorted(world.workers))
        chance = world.random.random()
        if chance < 0.08 and world.submitted < 10:
            world.submitted += 1
            world.submit(f"r{world.submitted}", steps=world.random.randint(1, 6))
        elif cancels and chance < 0.1 and world.submitted:
            world.cancel(f"r{world.random.randint(1, world.submitted)}")
        elif chance < 0.4:
            world.arrive(worker_id)
        elif chance < 0.7:
            world.make(worker_id)
        else:
            world.hear(worker_id)


def units_of(world: Fleet, request_id: str) -> int:
    """Encode, denoise, three tiles, write."""
    return 1 + world.specs[request_id].sampling.steps + 3 + 1


def check_ends(world: Fleet) -> None:
    assert world.core.live_requests == 0
    assert world.reserved() == {}
    decided = [d for _, _, made in [*world.log, *world.history] for d in made]
    ends = Counter(d.request_id for d in decided if isinstance(d, TERMINAL))
    assert ends == Counter(f"r{n}" for n in range(1, world.submitted + 1))
    for decision in decided:
        if isinstance(decision, CompleteRequest):
            assert decision.metrics.units == units_of(world, decision.request_id)
    for worker in world.workers.values():
        assert worker.held == {}, "a worker still holds what nobody needs"


@worlds
@given(seeds, st.integers(0, 160), st.integers(0, 40), st.integers(0, 100))
def test_whatever_a_dead_leader_lost_every_loop_goes_on(seed, times, lost, folded_from):
    world = busy(seed)
    happen(world, times)
    world.fail_over(max(2, len(world.history) - lost), folded_from=folded_from)
    happen_detached(world)
    world.come_back()
    happen(world, 40)
    world.run()
    check_ends(world)
    assert not any(isinstance(d, RestartRequest) for d in world.decisions)


@worlds
@given(seeds, st.lists(st.tuples(st.integers(0, 80), st.integers(0, 30)), max_size=4))
def test_leaders_may_die_again_and_again(seed, terms):
    world = busy(seed, workers=3)
    for times, lost in terms:
        happen(world, times, cancels=True)
        world.fail_over(
            max(3, len(world.history) - lost)
            if not world.log
            else max(0, len(world.history) - lost)
        )
        if world.random.random() < 0.7:
            world.come_back()
    world.come_back()
    world.run()
    check_ends(world)
    assert not any(isinstance(d, RestartRequest) for d in world.decisions)


@worlds
@given(seeds, st.lists(st.integers(0, 60), max_size=5))
def test_a_broken_stream_costs_no_loop(seed, times):
    world = busy(seed)
    for n in times:
        happen(world, n, cancels=True)
        worker_id = world.random.choice(sorted(world.workers))
        world.detach(worker_id)
        happen(world, 10)
        world.reattach(worker_id)
    world.run()
    check_ends(world)
    assert not any(isinstance(d, RestartRequest) for d in world.decisions)


def happen_detached(world: Fleet) -> None:
    """Workers work on while nobody leads."""
    for _ in range(10):
        world.make(world.random.choice(sorted(world.workers)))
