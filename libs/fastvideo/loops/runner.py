"""The simplest driver of a loop: one request, alone, to its end."""

from collections.abc import Callable
from typing import Any

import torch

from fastvideo.loops.contract import (
    LoopKernel,
    LoopOutput,
    PlanContext,
    StepContext,
    Values,
)
from fastvideo.loops.plans import check_plan
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef


def run_loop(
    kernel: LoopKernel[Any, Any],
    request: RequestSpec,
    inputs: Values,
    instance: Any,
    *,
    context: StepContext | None = None,
    on_step: Callable[[Any], None] | None = None,
) -> LoopOutput:
    """Drive a loop to its end; `on_step` is given the state after each unit.

    Raises ContractViolation for a plan that is incomplete, and whatever the kernel raises.
    """
    context = context or StepContext()
    loop = LoopRef(request_id=request.request_id, node_id=kernel.spec.loop_id, attempt=1)
    plan_context = PlanContext(
        model_instance_id=instance.model_instance_id,
        program_id=request.program_id,
        session_id=request.session_id,
    )
    with torch.no_grad():
        state = kernel.init_state(loop, request, inputs, instance)
        while (plan := kernel.plan_step(state, plan_context)) is not None:
            check_plan(plan, state, kernel.spec)
            for unit in plan.units:
                [output] = kernel.run_step([(state, unit)], instance, context)
                state = kernel.advance(state, unit, output)
                if on_step is not None:
                    on_step(state)
        return kernel.finalize(state, instance)
