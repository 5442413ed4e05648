"""The loop suite tells what is wrong with a kernel: planted faults, each found by name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import LoopOutput, PlanContext, StepContext
from fastvideo.loops.samplers import UniPCState
from fastvideo.loops.suite import check_loop
from fastvideo.model.tensors import TensorSchema
from fastvideo.models.wan.loops.denoise import DenoiseKernel, DenoiseOutput, DenoiseState
from fastvideo.scheduling.work import WorkPlan, WorkUnit
from tests.contract.test_loops import MODEL, features
from tests.parity.wan import embedded_model


class PlansWithMemory(DenoiseKernel):
    """Counts its plans in the kernel, and shows it."""

    planned = 0

    def plan_step(self, state: DenoiseState, context: PlanContext) -> WorkPlan | None:
        plan = super().plan_step(state, context)
        self.planned += 1
        if plan is None:
            return None
        return replace(plan, units=(replace(plan.units[0], cost_shape=f"{self.planned}"),))


class PlanComputes(DenoiseKernel):
    """Looks at the values of the latents to plan."""

    def plan_step(self, state: DenoiseState, context: PlanContext) -> WorkPlan | None:
        return super().plan_step(state, context) if state.latents.isfinite().all() else None


class PlanWritesState(DenoiseKernel):
    """Changes the request behind its back while planning."""

    def plan_step(self, state: DenoiseState, context: PlanContext) -> WorkPlan | None:
        object.__setattr__(state.request.sampling, "seed", 1)
        return super().plan_step(state, context)


class PlansWithoutSinks(DenoiseKernel):
    """Forgets to say where its output goes."""

    def plan_step(self, state: DenoiseState, context: PlanContext) -> WorkPlan | None:
        plan = super().plan_step(state, context)
        return plan and replace(plan, units=(replace(plan.units[0], output_sinks=()),))


class RunsInInit(DenoiseKernel):
    """Runs the model while it binds its state."""

    def init_state(self, *arguments: Any) -> DenoiseState:
        state = super().init_state(*arguments)
        transformer = arguments[-1].components["transformer"]
        transformer(state.latents, state.schedule.timesteps[:1], state.features[:1])
        return state


class RunsInPlace(DenoiseKernel):
    """Adds to the latents that it was given."""

    def run_step(
        self, batch: Sequence[tuple[DenoiseState, WorkUnit]], instance: Any, context: StepContext
    ) -> Sequence[DenoiseOutput]:
        outputs = super().run_step(batch, instance, context)
        batch[0][0].latents.add_(1.0)
        return outputs


class ForgetsVersion(DenoiseKernel):
    """Moves on without a new version."""

    def advance(self, state: DenoiseState, unit: WorkUnit, output: DenoiseOutput) -> DenoiseState:
        return replace(super().advance(state, unit, output), version=state.version)


class SharesState(DenoiseKernel):
    """Keeps the last request's velocity in the kernel, as a module-global cache would."""

    def __init__(self, spec: Any) -> None:
        super().__init__(spec)
        self._last: dict[int, torch.Tensor] = {}

    def run_step(
        self, batch: Sequence[tuple[DenoiseState, WorkUnit]], instance: Any, context: StepContext
    ) -> Sequence[DenoiseOutput]:
        outputs = super().run_step(batch, instance, context)
        blended = []
        for (_, unit), output in zip(batch, outputs, strict=True):
            if unit.step_range.start == 0:
                self._last.clear()
            before = self._last.get(0, output.velocity)
            self._last[0] = output.velocity
            blended.append(replace(output, latents=output.latents + 0.01 * before))
        return blended


class MixesRows(DenoiseKernel):
    """Centres a batch on its mean."""

    def run_step(
        self, batch: Sequence[tuple[DenoiseState, WorkUnit]], instance: Any, context: StepContext
    ) -> Sequence[DenoiseOutput]:
        outputs = super().run_step(batch, instance, context)
        mean = torch.cat([output.latents for output in outputs]).mean()
        return [replace(output, latents=output.latents - mean) for output in outputs]


class GivesADict(DenoiseKernel):
    """Ends with a dict that nobody can check."""

    def finalize(self, state: DenoiseState, instance: Any) -> LoopOutput:
        return {"latents": state.latents}  # type: ignore[return-value]


class SavesTooLittle(DenoiseKernel):
    """Forgets the sampler's history."""

    def save_state(self, state: DenoiseState) -> Any:
        return {**super().save_state(state), "sampler": UniPCState()}


class LoadsOtherConditions(DenoiseKernel):
    """Goes on under conditions that its digest does not show."""

    def load_state(self, *arguments: Any) -> DenoiseState:
        state = super().load_state(*arguments)
        return replace(state, features=state.features * 1.001)


@dataclass(frozen=True)
class Fault:
    kernel: type[DenoiseKernel]
    reason: str


@pytest.mark.row("LOOP-01", "LOOP-02", "LOOP-03", "LOOP-04", "LOOP-05", "LOOP-07")
@pytest.mark.parametrize(
    "fault",
    [
        Fault(PlansWithMemory, "PLAN_IMPURE"),
        Fault(PlanComputes, "PLAN_IMPURE"),
        Fault(PlanWritesState, "PLAN_IMPURE"),
        Fault(PlansWithoutSinks, "INCOMPLETE_PLAN"),
        Fault(RunsInInit, "INIT_RUNS_STEPS"),
        Fault(RunsInPlace, "RUN_CHANGES_STATE"),
        Fault(ForgetsVersion, "BAD_TRANSITION"),
        Fault(SharesState, "INTERLEAVING_MIXES"),
        Fault(MixesRows, "BATCHING_MIXES"),
        Fault(GivesADict, "UNTYPED_RESULT"),
        Fault(SavesTooLittle, "NOT_RESUMABLE"),
        Fault(LoadsOtherConditions, "NOT_RESUMABLE"),
    ],
    ids=lambda fault: fault.kernel.__name__,
)
def test_the_suite_catches_a_planted_fault(fault: Fault) -> None:
    model = embedded_model()
    kernel = fault.kernel(model.card.loops["denoise"])
    cases = [features(i, steps=3, guidance_scale=3.0) for i in range(2)]
    with pytest.raises(ContractViolation) as caught:
        check_loop(kernel, model, cases)
    assert caught.value.reason == fault.reason
    assert caught.value.subject == "denoise"


@pytest.mark.row("VAL-01")
@pytest.mark.parametrize(
    ("part", "name", "dims", "dtype", "reason"),
    [
        ("state", "", (), "", "UNDECLARED_STATE"),
        ("step", "", (), "", "UNDECLARED_STATE"),
        ("state", "latents", ("1", "C", "T", "H", "W"), "float16", "TENSOR_MISMATCH"),
        ("state", "features", ("L", "D"), "float32", "TENSOR_MISMATCH"),
        ("step", "velocity", ("1", "C", "T", "H", "H2"), "float64", "TENSOR_MISMATCH"),
    ],
)
def test_the_suite_catches_a_state_or_a_step_that_is_not_as_declared(
    part: str, name: str, dims: tuple[str, ...], dtype: str, reason: str
) -> None:
    model = embedded_model()
    kernel = model.kernels["denoise"]
    sound = Catalog.load([MODEL]).get(MODEL).state_schemas[kernel.spec.state_schema]
    given = TensorSchema(name=name, dims=dims, dtype=dtype)
    others = tuple(one for one in getattr(sound, part) if name and one.name != name)
    wrong = replace(sound, **{part: (*others, given) if name else ()})
    cases = [features(i, steps=1, width=16, height=16) for i in range(2)]
    with pytest.raises(ContractViolation) as caught:
        check_loop(kernel, model, cases, schema=wrong)
    assert (caught.value.reason, caught.value.subject) == (reason, kernel.spec.state_schema)
    assert caught.value.attributes["tensor"] == (name or caught.value.attributes["tensor"])


def test_the_suite_needs_two_cases() -> None:
    model = embedded_model()
    with pytest.raises(ContractViolation, match="two cases"):
        check_loop(model.kernels["denoise"], model, [features(0, steps=1)])
