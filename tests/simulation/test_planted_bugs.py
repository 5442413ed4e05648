"""Bugs planted into the real core, one at a time: the checker finds each of them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from fastvideo.scheduling import observe, ready, results
from fastvideo.scheduling.admission import Amounts, Ledger
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.state import SchedulerState
from fastvideo.scheduling.work import WorkUnit
from fastvideo.simulation.reading import read_scenario
from fastvideo.simulation.witness import InvariantBroken
from fastvideo.simulation.world import World

WORLDS = Path(__file__).parent / "worlds"
Plant = Callable[[pytest.MonkeyPatch], None]


def leaked_reservation(patch: pytest.MonkeyPatch) -> None:
    """Every hundredth batch's reservation is not given back."""
    release, calls = Ledger.release, []

    def leaky(self: Ledger, amounts: Amounts) -> None:
        calls.append(amounts)
        if len(calls) % 100:
            release(self, amounts)

    patch.setattr(Ledger, "release", leaky)


def stale_attempt(patch: pytest.MonkeyPatch) -> None:
    """A result moves its request's loop on, whichever attempt it is of."""
    take_executed = results.take_executed

    def trusting(state: SchedulerState, event: BatchExecuted, now: datetime) -> None:
        for result in event.results:
            request = state.requests.get(result.loop.request_id)
            run = request.loops.get(result.loop.node_id) if request is not None else None
            if request is None or run is None or request.attempt == result.loop.attempt:
                continue
            for unit in [u for u in run.waiting.values() if u.step_range == result.step_range]:
                del run.waiting[unit.unit_id]
                state.workers[request.worker_id].queue(unit).remove(unit.unit_id)
                state.touched_requests[request.request_id] = None
                if result.loop_result is not None:
                    results.finish_loop(state, request, run, result.loop_result)
                elif result.next_plan is not None:
                    units = tuple(renewed(u, request.attempt) for u in result.next_plan.units)
                    plan = replace(result.next_plan, loop=run.ref, units=units)
                    results.offer(state, request, run, plan, now)
        take_executed(state, event, now)

    def renewed(unit: WorkUnit, attempt: int) -> WorkUnit:
        ref = replace(unit.loop, attempt=attempt)
        unit_id = f"{ref.request_id}/{ref.node_id}/{attempt}/{unit.step_range.start}"
        return replace(unit, loop=ref, unit_id=unit_id)

    patch.setattr(observe, "take_executed", trusting)


def mixed_branch_sets(patch: pytest.MonkeyPatch) -> None:
    """Guidance branches are left out of what must agree inside a batch."""
    group = ready.group_of

    def careless(unit: WorkUnit) -> ready.GroupKey:
        key = group(unit)
        return key._replace(batch_key=key.batch_key.partition("|branches")[0])

    patch.setattr(ready, "group_of", careless)


def run_all(worlds: Iterable[World]) -> None:
    for world in worlds:
        world.run()


BUGS = [
    pytest.param(
        "crowd.yaml",
        leaked_reservation,
        "a leak",
        id="leaked reservation",
        marks=pytest.mark.row("TST-04"),
    ),
    pytest.param("pauses.yaml", stale_attempt, "not offered|before .* ended", id="stale attempt"),
    pytest.param(
        "crowd.yaml",
        mixed_branch_sets,
        "mixes what must not",
        id="mixed branch sets",
        marks=pytest.mark.row("TST-05"),
    ),
]


@pytest.mark.parametrize(("world", "plant", "said"), BUGS)
def test_a_planted_bug_is_caught(
    world: str, plant: Plant, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = read_scenario(WORLDS / world)
    plant(monkeypatch)
    worlds = [World(scenario, seed) for seed in range(4)]
    with pytest.raises(InvariantBroken, match=said) as caught:
        run_all(worlds)
    told = caught.value.attributes["replay"]
    assert told.startswith(f"fastvideo simulate {WORLDS / world} --seed ")
    assert "--until" in told
