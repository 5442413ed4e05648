"""Explanations of whole worlds: the real scheduler core, scripted workers, some of them lost."""

import random
from collections import Counter
from datetime import timedelta

import pytest

from fastvideo.explain.explanation import Page, explain
from fastvideo.explain.history import History
from fastvideo.explain.names import Names
from fastvideo.explain.totals import timeline
from fastvideo.explain.types import Explanation, UnitOutcome
from fastvideo.requests.types import RequestState, RequestStatus
from fastvideo.scheduling.effects import TERMINAL
from fastvideo.scheduling.events import BatchExecuted, SchedulerDecided
from fastvideo.scheduling.inputs import CancelRequested, RequestSubmitted, Tick
from tests.unit.scheduling.world import START, World

REQUESTS = 8
NOT_IN_THE_LOG = (CancelRequested, RequestSubmitted, Tick)


def live(seed: int) -> World:
    """A world that has come to rest after arrivals, cancellations and a lost worker."""
    chance = random.Random(seed)
    world = World()
    world.attach("w1")
    world.attach("w2")
    for number in range(REQUESTS):
        world.submit(f"r{number}", steps=chance.randint(1, 6))
        for _ in range(chance.randint(0, 12)):
            world.now += timedelta(seconds=chance.random() * 0.01)
            world.step()
    if seed % 3 == 0:
        world.lose("w2")
    if seed % 2 == 0:
        world.cancel(f"r{chance.randrange(REQUESTS)}")
    world.run()
    return world


def explained(world: World, request_id: str) -> Explanation:
    """Fold the world's history as the log would have it."""
    submitted = next(
        now
        for event, now, _ in world.history
        if isinstance(event, RequestSubmitted) and event.spec.request_id == request_id
    )
    history = History(request_id, submitted)
    for event, now, decisions in world.history:
        if not isinstance(event, NOT_IN_THE_LOG):
            history.take(now, event)
        history.take(now, SchedulerDecided(at=now, decisions=decisions))
    state = RequestState(
        spec=world.specs[request_id], status=RequestStatus.COMPLETED, accepted_at=START
    )
    names = Names(frozenset(world.specs))
    laid_out = timeline(history, world.now)
    return explain(state, history, laid_out, names, page=Page(0, 10_000))


@pytest.fixture(scope="module", params=range(6))
def world(request: pytest.FixtureRequest) -> World:
    made: World = live(request.param)
    return made


@pytest.fixture(scope="module")
def all_explained(world: World) -> dict[str, Explanation]:
    return {request_id: explained(world, request_id) for request_id in world.specs}


def test_sums_agree_with_the_request_s_metrics(
    world: World, all_explained: dict[str, Explanation]
) -> None:
    for request_id, told in all_explained.items():
        decision = world.terminal(request_id)
        assert isinstance(decision, TERMINAL)
        metrics = decision.metrics
        assert told.totals.device_seconds == pytest.approx(metrics.device_seconds, abs=1e-6)
        assert told.totals.total_seconds == pytest.approx(metrics.total_seconds, abs=1e-6)
        assert told.totals.units == metrics.units
        assert sum(attempt.units for attempt in told.attempts) == metrics.units


def test_every_moment_has_one_cause(all_explained: dict[str, Explanation]) -> None:
    for told in all_explained.values():
        sums = told.totals
        parts = sum(sums.waited_by_cause.values()) + sums.device_busy_seconds + sums.io_seconds
        assert parts == pytest.approx(sums.total_seconds, abs=1e-6)


def test_waits_of_a_unit_go_from_ready_to_started_without_gaps(
    all_explained: dict[str, Explanation],
) -> None:
    for told in all_explained.values():
        for unit in told.units:
            if unit.started_at is None or unit.ready_at is None:
                continue
            waited = (unit.started_at - unit.ready_at).total_seconds()
            assert unit.waited_seconds == pytest.approx(waited, abs=1e-5)


def test_every_unit_that_a_worker_ran_is_told_once(
    world: World, all_explained: dict[str, Explanation]
) -> None:
    ran: Counter[str] = Counter()
    for event, _, _ in world.history:
        if isinstance(event, BatchExecuted):
            ran.update(result.unit_id for result in event.results)
    told = Counter(
        unit.unit_id
        for one in all_explained.values()
        for unit in one.units
        if unit.outcome is UnitOutcome.DONE
    )
    assert told == ran


def test_who_shared_a_unit_says_so_too(all_explained: dict[str, Explanation]) -> None:
    pairs = {
        (request_id, mate, unit.batch_id, unit.window_position)
        for request_id, told in all_explained.items()
        for unit in told.units
        for mate in unit.shared_with
    }
    assert pairs
    assert {(mate, mine, batch, place) for mine, mate, batch, place in pairs} == pairs


def test_stages_sum_up_their_units(all_explained: dict[str, Explanation]) -> None:
    for told in all_explained.values():
        done = [unit for unit in told.units if unit.outcome is UnitOutcome.DONE]
        assert sum(stage.units for stage in told.stages) == len(done)
        measured = sum(stage.measured_seconds for stage in told.stages)
        assert measured == pytest.approx(told.totals.measured_seconds)
