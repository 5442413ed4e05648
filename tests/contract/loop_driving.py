"""Driving one loop from a state to its end, noting a digest at every boundary."""

import hashlib
from collections.abc import Callable
from typing import Any

from fastvideo.loops.contract import PlanContext, StepContext
from fastvideo.loops.suite import fingerprint


def drive_on(
    kernel: Any, state: Any, instance: Any, on_boundary: Callable[[Any], None] = lambda state: None
) -> list[str]:
    """Digests of the states that follow, and last of the outputs."""
    digests = []
    while (plan := kernel.plan_step(state, PlanContext(model_instance_id="m"))) is not None:
        on_boundary(state)
        [output] = kernel.run_step([(state, plan.units[0])], instance, StepContext())
        state = kernel.advance(state, plan.units[0], output)
        digests.append(hashlib.sha256(kernel.state_bytes(state)).hexdigest())
    output = kernel.finalize(state, instance)
    return [*digests, fingerprint(output)]
