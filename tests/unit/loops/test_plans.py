from dataclasses import replace
from typing import Any

import pytest

from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import PlanContext, StateBase
from fastvideo.loops.plans import check_plan
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.model.specs import CostPrior, LoopSpec, StepPolicy, UnitPhase
from fastvideo.requests.types import OutputSpec, RequestKind, RequestSpec, SamplingParams
from fastvideo.scheduling.work import (
    CachePlan,
    LoopRef,
    PlacementHint,
    ResourceRequest,
    StepRange,
    UnitKind,
    WorkPlan,
    WorkUnit,
)

SPEC = LoopSpec(
    loop_id="denoise",
    unit_kind=UnitKind.DIFFUSION_STEP,
    step_policy=StepPolicy(count_from="steps", batchable=True, max_batch=4),
    preemption_policy="every_step",
    graph_capture_policy="none",
    cost=CostPrior(phase="denoise", base_seconds=1.0),
)
STATE = StateBase(
    loop=LoopRef(request_id="r", node_id="n", attempt=2),
    request=RequestSpec(
        kind=RequestKind.GENERATION, sampling=SamplingParams(), outputs=OutputSpec()
    ),
    version=3,
)
SHAPE = UnitShape(
    batch_key="k", cost_shape="8x3", activation_bytes=100, outputs=("latents",), max_batch=4
)


def plan(spec: LoopSpec = SPEC) -> WorkPlan:
    made = next_unit_plan(spec, STATE, PlanContext(model_instance_id="mi"), 3, 5, SHAPE)
    assert made is not None
    return made


def test_a_unit_in_sequence_declares_everything() -> None:
    check_plan(plan(), STATE, SPEC)
    [unit] = plan().units
    assert unit.unit_id == "r/n/2/3"
    assert unit.step_range == StepRange(start=3, stop=4, total=5)
    assert unit.unconditional_next == 1
    assert unit.cancel_boundary


def test_nothing_is_planned_after_the_last_unit() -> None:
    context = PlanContext(model_instance_id="mi")
    assert next_unit_plan(SPEC, STATE, context, 5, 5, SHAPE) is None


@pytest.mark.row("LOOP-04")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unit_id": ""}, "has no id"),
        ({"loop": LoopRef(request_id="r", node_id="n", attempt=1)}, "is of another loop"),
        ({"loop_id": "other"}, "is diffusion_step of 'other'"),
        ({"kind": UnitKind.VAE_TILE}, "is vae_tile"),
        ({"step_range": StepRange()}, "covers no steps"),
        ({"model_instance_id": ""}, "declares no model_instance_id"),
        ({"batch_key": ""}, "declares no batch_key"),
        ({"cost_phase": ""}, "declares no cost_phase"),
        ({"cost_shape": ""}, "declares no cost_shape"),
        ({"max_batch": 0}, "declares max_batch 0"),
        ({"max_batch": 5}, "declares max_batch 5; the card allows 4"),
        ({"resources": ResourceRequest(compute=True)}, "declares no memory"),
        ({"resources": ResourceRequest(memory_bytes={"attic": 1})}, "unknown memory pools"),
        ({"cache_plan": CachePlan(reads=("a",))}, "uses a cache on a loop that declares none"),
        ({"placement_hint": PlacementHint()}, "declares no placement"),
        ({"output_sinks": ()}, "declares no output sinks"),
        ({"cancel_boundary": False}, "is no cancel boundary"),
        ({"unconditional_next": 2}, "is followed by 2 units"),
    ],
)
def test_a_unit_that_lacks_a_declaration_is_refused(changes: dict[str, Any], message: str) -> None:
    broken = replace(plan(), units=(replace(plan().units[0], **changes),))
    with pytest.raises(ContractViolation, match=message) as caught:
        check_plan(broken, STATE, SPEC)
    assert caught.value.reason == "INCOMPLETE_PLAN"
    assert caught.value.subject == "denoise"


@pytest.mark.row("LOOP-04")
def test_caches_and_capture_shapes_are_declared_where_the_loop_has_them() -> None:
    cached = replace(SPEC, cache_contracts=("text_features",))
    with pytest.raises(ContractViolation, match="declares no cache reads"):
        check_plan(plan(), STATE, cached)
    captured = replace(SPEC, graph_capture_policy="piecewise")
    with pytest.raises(ContractViolation, match="declares no capture shape"):
        check_plan(plan(), STATE, captured)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state_version": 2}, "is for version 2, the state has 3"),
        ({"loop": LoopRef(request_id="s")}, "is for another loop"),
        ({"units": ()}, "has no units"),
        ({"units": plan().units * 2}, "names a unit twice"),
        ({"units": plan().units * 65}, "has 65 units; the most is 64"),
    ],
)
def test_a_plan_for_another_state_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractViolation, match=message):
        check_plan(replace(plan(), **changes), STATE, SPEC)


TELLING = replace(
    SPEC,
    loop_id="tell",
    unit_kind=UnitKind.AR_TOKEN,
    phases=(
        UnitPhase(unit_kind=UnitKind.AR_PREFILL, cost=CostPrior(phase="prefill", base_seconds=2.0)),
        UnitPhase(unit_kind=UnitKind.CACHE_LOAD, cost=CostPrior(phase="load", base_seconds=0.1)),
        UnitPhase(unit_kind=UnitKind.GRAPH_CAPTURE, cost=CostPrior(phase="capture")),
    ),
)


def planned(**shape: Any) -> WorkUnit:
    """The next unit of a loop of several kinds, at step 3 of 5."""
    made = next_unit_plan(
        TELLING, STATE, PlanContext(model_instance_id="mi"), 3, 5, replace(SHAPE, **shape)
    )
    assert made is not None
    check_plan(made, STATE, TELLING)
    return made.units[0]


@pytest.mark.row("LOOP-04")
def test_a_loop_plans_units_of_the_kinds_that_its_card_prices() -> None:
    assert planned().cost_phase == "denoise"
    prefill = planned(kind=UnitKind.AR_PREFILL, cache_blocks=3)
    assert (prefill.kind, prefill.cost_phase) == (UnitKind.AR_PREFILL, "prefill")
    assert prefill.resources.cache_blocks == 3
    with pytest.raises(ContractViolation, match="no units of kind vae_tile"):
        planned(kind=UnitKind.VAE_TILE)


def test_a_window_covers_several_steps_and_never_more_than_are_left() -> None:
    assert planned(steps=2).step_range == StepRange(start=3, stop=5, total=5)
    assert planned(steps=9).step_range == StepRange(start=3, stop=5, total=5)
    assert (planned(steps=1).unconditional_next, planned(steps=2).unconditional_next) == (1, 0)


@pytest.mark.row("LOOP-04")
def test_what_waits_for_a_store_takes_no_compute_window_and_all_else_does() -> None:
    load = planned(kind=UnitKind.CACHE_LOAD, compute=False, activation_bytes=0, staging_bytes=8)
    assert not load.resources.compute
    with pytest.raises(ContractViolation, match="takes a compute window off the step path"):
        planned(kind=UnitKind.CACHE_LOAD)
    with pytest.raises(ContractViolation, match="takes no compute window"):
        planned(compute=False)


@pytest.mark.row("LOOP-04")
def test_a_loop_that_captures_in_units_of_their_own_declares_the_shape_there_alone() -> None:
    assert planned().resources.capture_shape == ""
    capture = planned(kind=UnitKind.GRAPH_CAPTURE, capture_shape="8x3")
    assert capture.resources.capture_shape == "8x3"
    with pytest.raises(ContractViolation, match="declares no capture shape"):
        planned(kind=UnitKind.GRAPH_CAPTURE)
