"""Admission with real loops: who waits for what, and that all of it comes back."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from fastvideo.engine.engine import Engine
from fastvideo.errors import Cancelled, ResourceExhausted
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import OFF_STEP_PATH

Run = Callable[..., Any]
MakeEngine = Callable[..., Engine]

REQUESTS = 8


def painting(seed: int, **options: Any) -> dict[str, Any]:
    asked = {"model": "pocket", "program": "paint", "prompt": "a red fox", "steps": 4}
    return asked | {"seed": seed} | options


def painted(results: Any, log: Any) -> list[str]:
    return [log.named(result.request_id)["denoise.latents"] for result in results]


def held(engine: Engine) -> dict[str, float]:
    """What is reserved for anybody."""
    return {name: amount for name, amount in engine._core.reserved.items() if amount}


@pytest.mark.row("SCH-01", "SCH-02", "SCH-04", "SCH-05")
def test_on_a_budget_of_one_unit_requests_take_turns_with_the_bits_of_requests_alone(
    make_engine: MakeEngine, engine: Engine, run_all: Run
) -> None:
    alone = [painted(*run_all(engine, painting(seed))) for seed in range(REQUESTS)]
    # Less than any unit is predicted to take, so each has all of it.
    budget = {"compute_seconds": 1e-6}
    one = make_engine(policy=SchedulingPolicy(worker_budget=budget, window_steps_max=1))
    results, log = run_all(one, *(painting(seed) for seed in range(REQUESTS)))
    assert painted(results, log) == [digest for [digest] in alone]
    steps = [ran for ran in log.batches if ran.kind not in OFF_STEP_PATH]
    # Never two units at once, alone or together, and each with its reservation.
    assert {ran.size for ran in steps} == {1}
    assert all(ran.reserved["compute_slots"] == 1 for ran in steps)
    assert all(ran.reserved["compute_seconds"] == 1e-6 for ran in steps)
    assert all(later.began_s >= ran.ended_s for ran, later in itertools.pairwise(steps))
    # In turns: one after the other would be as many changes as requests.
    whose = [ran.executed.results[0].loop.request_id for ran in steps]
    assert sum(before != after for before, after in itertools.pairwise(whose)) > 3 * REQUESTS
    assert held(one) == {}


@pytest.mark.row("SCH-03", "SCH-04")
def test_what_is_cancelled_or_can_never_fit_gives_everything_back(
    make_engine: MakeEngine, run_all: Run
) -> None:
    policy = SchedulingPolicy(worker_budget={"memory_bytes/activations": 1})
    narrow = make_engine(policy=policy)
    with pytest.raises(ResourceExhausted, match="memory_bytes/activations") as refused:
        run_all(narrow, painting(0))
    assert refused.value.attributes["limit"] == "1"
    assert held(narrow) == {}
    wide = make_engine()
    handle = wide.submit(**painting(0, steps=64))
    handle.cancel()
    with pytest.raises(Cancelled):
        handle.result(60.0)
    assert held(wide) == {}
