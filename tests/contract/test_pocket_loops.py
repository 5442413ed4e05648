"""The loop contract on the small real loops of every kind, and the gates that judge them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from fastvideo.cache.memory_tier import MemoryTier
from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import LoopOutput, PlanContext, StepContext
from fastvideo.loops.runner import run_loop
from fastvideo.loops.suite import LoopCase, check_loop
from fastvideo.model.specs import ParityTestSpec
from fastvideo.model.state_schemas import FILE, load_state_schemas
from fastvideo.models.registry import FAMILIES, family_modules, load_instance_parts
from fastvideo.models.resident import StandaloneModel
from fastvideo.models.wan.geometry import default_sampling
from fastvideo.requests.types import OutputSpec, RequestKind, RequestSpec, TextPart
from fastvideo.scheduling.work import LoopRef, WorkUnit
from tests.families import pocket
from tests.families.pocket.checkpoint import write_checkpoint
from tests.families.pocket.loops.denoise import DenoiseKernel
from tests.families.pocket.loops.tell import TellKernel, TellState
from tests.families.pocket.loops.voice import VoiceKernel, VoiceState

FAMILY = "tests.families.pocket"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StandaloneModel:
    return _load(tmp_path_factory.mktemp("checkpoints"))


@cache
def _load(folder: Path) -> StandaloneModel:
    torch.set_num_threads(1)
    checkpoint = write_checkpoint(folder / "pocket")
    entry = Catalog.load(["pocket"], folder, packages=[FAMILY]).get("pocket")
    families = {**FAMILIES, **family_modules([FAMILY])}
    return StandaloneModel(
        card=entry.card, parts=load_instance_parts(entry.card, checkpoint, families)
    )


def request_of(model: StandaloneModel, prompt: str = "a red fox", **sampling: Any) -> RequestSpec:
    return RequestSpec(
        request_id="r",
        kind=RequestKind.GENERATION,
        model_id="pocket",
        inputs=(TextPart(role="prompt", text=prompt),),
        sampling=replace(default_sampling(model.card), **sampling),
        outputs=OutputSpec(),
    )


def cases(model: StandaloneModel, before: Sequence[str], *asked: dict[str, Any]) -> list[LoopCase]:
    """Requests, and the values that the loops `before` leave for them."""
    made = []
    for options in asked:
        request, values = request_of(model, **options), dict[str, Any]()
        for loop_id in before:
            values |= run_loop(model.kernels[loop_id], request, values, model).values
        made.append(LoopCase(request=request, inputs=values))
    return made


@dataclass(frozen=True, kw_only=True)
class Case:
    """Requests to a loop, and what is to be seen of them."""

    asked: tuple[dict[str, Any], ...]
    # Loops that make what it starts from.
    before: tuple[str, ...] = ()
    # Units of each request, and how many of them share a batch at least.
    units: tuple[int, ...]
    batch: int = 1


PROMPTS = ("one", "two and a half", "three little foxes ran")
FEATURES = ("encode",)

CASES = {
    "tell": Case(
        asked=tuple(
            {"prompt": prompt, "steps": steps, "seed": steps}
            for prompt, steps in zip(PROMPTS, (5, 3, 7), strict=True)
        ),
        units=(6, 5, 10),
        batch=2,
    ),
    "recompute": Case(
        asked=tuple({"prompt": prompt, "steps": 4} for prompt in PROMPTS),
        before=("tell",),
        units=(1, 1, 1),
    ),
    "voice": Case(
        asked=({"steps": 3}, {"steps": 9}, {"steps": 5}), before=("tell",), units=(1, 3, 2)
    ),
    # Without a tier: a load that finds nothing, and the encoder.
    "encode": Case(asked=({}, {"prompt": "other"}, {"prompt": "a"}), units=(2, 2, 2)),
    "denoise": Case(
        asked=({"steps": 6}, {"steps": 3, "seed": 1}, {"steps": 8, "guidance_scale": 7.0}),
        before=FEATURES,
        units=(6, 3, 8),
        batch=2,
    ),
    "denoise_window": Case(
        asked=({"steps": 6}, {"steps": 3, "seed": 1}, {"steps": 8}),
        before=FEATURES,
        units=(2, 1, 2),
        batch=2,
    ),
    "rollout": Case(
        asked=({"steps": 2, "num_frames": 3}, {"steps": 3, "num_frames": 2}),
        before=FEATURES,
        units=(6, 6),
        batch=2,
    ),
    "score": Case(
        asked=({"steps": 1, "num_frames": 2}, {"steps": 1, "seed": 2}),
        before=("encode", "rollout"),
        units=(1, 1),
    ),
}


@pytest.mark.row("LOOP-01", "LOOP-02", "LOOP-03", "LOOP-04", "LOOP-05", "LOOP-07", "VAL-01")
@pytest.mark.parametrize("loop_id", CASES)
def test_a_loop_keeps_the_contract(model: StandaloneModel, loop_id: str) -> None:
    case = CASES[loop_id]
    given = cases(model, case.before, *case.asked)
    kernel = model.kernels[loop_id]
    schemas = load_state_schemas(Path(pocket.__path__[0]) / FILE)
    report = check_loop(kernel, model, given, schema=schemas[kernel.spec.state_schema])
    assert report.units == case.units
    assert report.batch_max >= case.batch


def test_encoding_through_a_tier_keeps_the_contract(model: StandaloneModel) -> None:
    # The first case leaves its features in the tier; the state that holds them is the same.
    tier = MemoryTier(1 << 20)
    warm = cases(model, (), {}, {"prompt": "other"})
    for case in warm:
        run_loop(model.kernels["encode"], case.request, {}, model, context=StepContext(tier=tier))
    report = check_loop(model.kernels["encode"], model, warm, lambda: StepContext(tier=tier))
    assert report.units == (1, 1)
    assert report.forwards_alone == 0


@pytest.mark.row("WUK-14")
def test_a_chunk_of_a_rollout_follows_the_chunk_before_it(model: StandaloneModel) -> None:
    [case] = cases(model, FEATURES, {"steps": 2, "num_frames": 2})
    kernel: Any = model.kernels["rollout"]

    def second(history: float) -> torch.Tensor:
        """The second chunk, from the same noise, behind a first that is so much brighter."""
        loop = LoopRef(request_id="r", node_id="rollout", attempt=1)
        state = kernel.init_state(loop, case.request, case.inputs, model)
        with torch.no_grad():
            while (plan := kernel.plan_step(state, PlanContext(model_instance_id="i"))) is not None:
                [unit] = plan.units
                if unit.step_range.start == 2:
                    state.latents[:, :, :1] += history
                [output] = kernel.run_step([(state, unit)], model, StepContext(unit=unit))
                state = kernel.advance(state, unit, output)
        chunk: torch.Tensor = state.chunks[1]
        return chunk

    assert torch.equal(second(0.0), second(0.0))
    assert not torch.equal(second(0.0), second(0.5))


@pytest.mark.parametrize("chunk_tokens", [1, 3, 5, 8, 64])
def test_a_prompt_in_chunks_of_any_size_leaves_the_same_bits(
    model: StandaloneModel, chunk_tokens: int
) -> None:
    request = request_of(model, prompt="the quick brown fox jumps over", steps=6)
    whole = TellKernel(model.card.loops["tell"], chunk_tokens=29)
    chunked = TellKernel(model.card.loops["tell"], chunk_tokens=chunk_tokens)
    outputs = [run_loop(kernel, request, {}, model) for kernel in (whole, chunked)]
    assert outputs[0].digests == outputs[1].digests
    states = [_ended(kernel, request, model) for kernel in (whole, chunked)]
    assert torch.equal(states[0].keys, states[1].keys)
    assert torch.equal(states[0].values, states[1].values)


def _ended(kernel: TellKernel, request: RequestSpec, model: StandaloneModel) -> TellState:
    seen: list[TellState] = []
    run_loop(kernel, request, {}, model, on_step=seen.append)
    return seen[-1]


def test_speech_in_chunks_is_within_its_declared_rung_of_speech_at_once(
    model: StandaloneModel,
) -> None:
    [rung] = [test for test in model.card.parity.tests if test.name == "voice.chunked"]
    [case] = cases(model, ("tell",), {"steps": 30})
    chunked = run_loop(model.kernels["voice"], case.request, case.inputs, model).values["waveform"]
    kernel: Any = model.kernels["voice"]
    state: VoiceState = kernel.init_state(None, case.request, case.inputs, model)
    with torch.no_grad():
        whole = model.components["codec"].decode(state.codes, 0, len(state.codes))
    assert chunked.shape == whole.shape
    assert 0 < (chunked - whole).abs().max() <= rung.max_abs_difference
    assert whole.abs().max() > 1000 * rung.max_abs_difference


def test_the_gate_leaves_branches_out_and_windows_change_nothing(model: StandaloneModel) -> None:
    [case] = cases(model, ("encode",), {"steps": 8})
    outputs = {
        loop_id: run_loop(model.kernels[loop_id], case.request, case.inputs, model)
        for loop_id in ("denoise", "denoise_window")
    }
    assert outputs["denoise"].digests == outputs["denoise_window"].digests
    # Of 8 steps some reuse the delta; the first two never can.
    assert 2 <= outputs["denoise"].scores["guided_steps"] < 8


# -- the gates --------------------------------------------------------------------------------

_LAST_VELOCITY: dict[str, torch.Tensor | None] = {}


class KeepsItsDeltaInTheModule(DenoiseKernel):
    """The planted bug: what belongs to a request's state is a global of the module."""

    def run_step(
        self, batch: Sequence[tuple[Any, WorkUnit]], instance: Any, context: StepContext
    ) -> Sequence[Any]:
        outputs = []
        for (_, unit), output in zip(
            batch, super().run_step(batch, instance, context), strict=True
        ):
            if unit.step_range.start == 0:
                _LAST_VELOCITY.clear()
            before = _LAST_VELOCITY.get("delta", output.gate.delta)
            _LAST_VELOCITY["delta"] = output.gate.delta
            outputs.append(replace(output, gate=replace(output.gate, delta=before)))
        return outputs


@pytest.mark.row("LOOP-11")
def test_the_gate_catches_module_global_state_and_passes_the_same_state_a_request(
    model: StandaloneModel,
) -> None:
    given = cases(model, ("encode",), {"steps": 5}, {"steps": 5, "seed": 1})
    check_loop(model.kernels["denoise"], model, given)
    planted = KeepsItsDeltaInTheModule(model.card.loops["denoise"])
    # Alone and again it is the same: only requests in turns show it.
    alone = [run_loop(planted, given[0].request, given[0].inputs, model) for _ in range(2)]
    assert alone[0].digests == alone[1].digests
    with pytest.raises(ContractViolation) as caught:
        check_loop(planted, model, given)
    assert caught.value.reason == "INTERLEAVING_MIXES"


class _Empty(VoiceKernel):
    """Hands on what a case wants handed on."""

    def __init__(self, spec: Any, output: LoopOutput) -> None:
        super().__init__(spec)
        self._output = output

    def finalize(self, state: VoiceState, instance: Any) -> LoopOutput:
        return self._output


class _RunsNothing(VoiceKernel):
    """Has nothing to do and says that it is done."""

    def plan_step(self, state: VoiceState, context: Any) -> Any:
        return None


@pytest.mark.row("LOOP-12")
@pytest.mark.parametrize(
    "make",
    [
        lambda spec: _Empty(spec, LoopOutput()),
        lambda spec: _Empty(spec, LoopOutput(values={"waveform": torch.zeros(0)})),
        lambda spec: _Empty(spec, LoopOutput(values={"chunks": ()}, digests={"chunks": "0"})),
        _RunsNothing,
    ],
    ids=["nothing", "empty tensor", "empty tuple", "no unit"],
)
def test_the_gate_refuses_to_pass_on_empty_outputs(
    model: StandaloneModel, make: Callable[[Any], VoiceKernel]
) -> None:
    given = cases(model, ("tell",), {"steps": 3}, {"steps": 5})
    check_loop(model.kernels["voice"], model, given)
    with pytest.raises(ContractViolation) as caught:
        check_loop(make(model.card.loops["voice"]), model, given)
    assert caught.value.reason == "EMPTY_OUTPUT"


class _Drifts(TellKernel):
    """Shifts the log-probabilities of a shared batch by a little, as another kernel might."""

    drift = 1e-5

    def run_step(
        self, batch: Sequence[tuple[TellState, WorkUnit]], instance: Any, context: StepContext
    ) -> Sequence[Any]:
        outputs = super().run_step(batch, instance, context)
        if len(batch) == 1:
            return outputs
        return [replace(output, logprob=output.logprob + self.drift) for output in outputs]


@pytest.mark.row("LOOP-13")
def test_batches_are_exact_or_within_the_rung_that_is_declared(model: StandaloneModel) -> None:
    asked = ({"prompt": prompt, "steps": 4 + i} for i, prompt in enumerate(PROMPTS))
    given = cases(model, (), *asked)
    [exact] = [test for test in model.card.parity.tests if test.name == "tell.batched"]
    assert check_loop(model.kernels["tell"], model, given, rung=exact).batch_max >= 2
    drifting = _Drifts(model.card.loops["tell"])
    with pytest.raises(ContractViolation) as caught:
        check_loop(drifting, model, given, rung=exact)
    assert caught.value.reason == "BATCHING_MIXES"
    loose = ParityTestSpec(name="tell.batched", rung="C1", max_abs_difference=2e-5)
    check_loop(drifting, model, given, rung=loose)
    drifting.drift = 1e-3
    with pytest.raises(ContractViolation) as caught:
        check_loop(drifting, model, given, rung=loose)
    assert caught.value.reason == "BEYOND_RUNG"
