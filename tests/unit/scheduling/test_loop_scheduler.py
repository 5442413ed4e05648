"""LoopScheduler alone: which loops begin, what a plan adds, how far a request is."""

from dataclasses import replace

import pytest

from fastvideo.errors import ContractViolation
from fastvideo.scheduling.loop_scheduler import LoopPhase, LoopRun, LoopScheduler
from fastvideo.scheduling.request_scheduler import program_graph
from fastvideo.scheduling.work import LoopRef, StepRange, WorkPlan
from tests.unit.scheduling.world import TEXT_TO_VIDEO, unit

pytestmark = pytest.mark.row("SCH-16")

GRAPH = program_graph(TEXT_TO_VIDEO)


def loop(node_id="denoise", phase=LoopPhase.ACTIVE, **fields):
    ref = LoopRef(request_id="r1", node_id=node_id, attempt=1)
    return LoopRun(ref, node_id, phase, **fields)


def plan_of(run, *units, version=0):
    return WorkPlan(loop=run.ref, state_version=version, units=units)


def test_a_loop_can_be_prepared_once_its_inputs_are_there():
    rules = LoopScheduler()
    assert rules.preparable(GRAPH, {}) == ("encode",)
    assert rules.preparable(GRAPH, {"encode": loop("encode", LoopPhase.PREPARING)}) == ()
    assert rules.preparable(GRAPH, {"encode": loop("encode")}) == ()
    assert rules.preparable(GRAPH, {"encode": loop("encode", LoopPhase.ENDED)}) == ("denoise",)


def test_a_plan_adds_the_units_that_are_new():
    run = loop()
    first, second, third = (unit(run.ref, step, 3) for step in range(3))
    run.in_flight[first.unit_id] = first
    run.waiting[second.unit_id] = second
    assert LoopScheduler().offered(run, plan_of(run, first, second, third)) == (third,)


def test_a_plan_of_an_older_state_adds_nothing():
    run = loop(state_version=5)
    assert LoopScheduler().offered(run, plan_of(run, unit(run.ref), version=4)) == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"unit_id": ""}, "no id"),
        ({"loop": LoopRef(request_id="r2", node_id="denoise", attempt=1)}, "belongs to"),
        ({"max_batch": 0}, "max_batch is 0"),
        ({"step_range": StepRange(start=3, stop=3, total=4)}, "steps are"),
        ({"step_range": StepRange(start=3, stop=5, total=4)}, "steps are"),
    ],
)
def test_a_unit_that_does_not_say_what_it_must_is_refused(change, says):
    run = loop()
    with pytest.raises(ContractViolation, match=says):
        LoopScheduler().offered(run, plan_of(run, replace(unit(run.ref), **change)))


def test_progress_weighs_nodes_and_steps():
    rules = LoopScheduler()
    loops = {
        "encode": loop("encode", LoopPhase.ENDED),
        "denoise": loop("denoise", steps_done=5, steps=20),
    }
    assert rules.fraction(GRAPH, loops) == pytest.approx(0.1 + 0.7 * 0.25)


@pytest.mark.parametrize(
    ("loops", "expected"),
    [
        ({}, "queued"),
        ({"encode": loop("encode", LoopPhase.PREPARING)}, "encode"),
        ({"denoise": loop(steps_done=7, steps=20)}, "denoise 7/20"),
        ({"encode": loop("encode", LoopPhase.ENDED)}, "after encode"),
        (
            {"a": loop("a", steps_done=1, steps=2), "b": loop("b", steps_done=0, steps=4)},
            "a 1/2, b 0/4",
        ),
    ],
)
def test_a_boundary_says_where_the_loops_stand(loops, expected):
    assert LoopScheduler().boundary(loops) == expected
