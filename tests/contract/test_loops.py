"""The loop contract on every kernel that ships, and the faults that the suite must catch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from fastvideo.cache.features import TextFeatureCache
from fastvideo.deployment.catalog import Catalog
from fastvideo.loops.behavior import Captured
from fastvideo.loops.contract import PlanContext, StepContext
from fastvideo.loops.runner import run_loop
from fastvideo.loops.snapshot_format import SnapshotMismatch, decode
from fastvideo.loops.snapshots import load_state, save_state
from fastvideo.loops.suite import LoopCase, LoopReport, check_loop
from fastvideo.models.wan.loops.denoise import DenoiseState
from fastvideo.requests.types import Capture, OutputSpec, RequestKind
from fastvideo.scheduling.work import LoopRef
from tests.parity.wan import embedded_model, generation

MODEL = "moving-digits"
PROMPTS = ("a red three moving left", "a blue digit nine moves up", "the four is green")


def check(loop_id: str, cases: Sequence[LoopCase], cache: TextFeatureCache | None) -> LoopReport:
    model = embedded_model()

    def make_context() -> StepContext:
        context = StepContext()
        context.cache = None if cache is None else cache.open(context)
        return context

    kernel = model.kernels[loop_id]
    schema = Catalog.load([MODEL]).get(MODEL).state_schemas[kernel.spec.state_schema]
    return check_loop(kernel, model, cases, make_context, schema=schema)


def features(index: int, **changes: Any) -> LoopCase:
    """A case of a loop that starts from text features."""
    model = embedded_model()
    request = generation(f"r{index}", prompt=PROMPTS[index % 3], seed=index, **changes)
    return LoopCase(
        request=request, inputs=run_loop(model.kernels["encode"], request, {}, model).values
    )


def latents(index: int, **changes: Any) -> LoopCase:
    """A case of a loop that starts from latents, with the features that led to them."""
    model = embedded_model()
    case = features(index, **changes)
    made = run_loop(model.kernels["denoise"], case.request, case.inputs, model).values
    return replace(case, inputs={**case.inputs, **made})


def image(index: int, **changes: Any) -> LoopCase:
    """A case of the loop that starts from an image."""
    pixels = torch.randint(
        0, 256, (40 + index, 60, 3), generator=torch.Generator().manual_seed(index)
    ).to(torch.uint8)
    request = generation(f"r{index}", seed=index, **changes)
    return LoopCase(request=request, inputs={"image": pixels})


def first_frame(index: int, **changes: Any) -> LoopCase:
    """A case of the loop that starts from text features and an image's latents."""
    model = embedded_model()
    case, given = features(index, **changes), image(index, **changes)
    made = run_loop(model.kernels["vae_encode"], given.request, given.inputs, model).values
    return replace(case, inputs={**case.inputs, **made})


@pytest.mark.row("LOOP-01", "LOOP-02", "LOOP-03", "LOOP-04", "LOOP-05", "VAL-01")
@pytest.mark.parametrize("cached", [False, True])
def test_the_encode_loop_keeps_the_contract(cached: bool) -> None:
    cases = [
        LoopCase(request=generation(f"r{i}", prompt=PROMPTS[i], guidance_scale=scale), inputs={})
        for i, scale in enumerate((3.0, 1.0, 5.0))
    ]
    report = check("encode", cases, TextFeatureCache(1 << 20) if cached else None)
    assert report.units == (2, 1, 2)


@pytest.mark.row("LOOP-01", "LOOP-02", "LOOP-03", "LOOP-04", "LOOP-05", "LOOP-07", "VAL-01")
def test_the_denoise_loop_keeps_the_contract_with_mixed_steps_and_guidance() -> None:
    cases = [
        features(0, steps=4, guidance_scale=5.0),
        features(1, steps=2, guidance_scale=3.0),
        features(2, steps=3, guidance_scale=1.0),
        features(3, steps=4, guidance_scale=3.0, flow_shift=5.0),
        features(4, steps=3, guidance_scale=1.0),
    ]
    report = check("denoise", cases, None)
    assert report.units == (4, 2, 3, 4, 3)
    assert report.batch_max >= 2
    assert report.forwards_shared < report.forwards_alone


@pytest.mark.row("LOOP-01", "LOOP-02", "LOOP-03", "LOOP-04", "LOOP-05", "LOOP-07", "VAL-01")
def test_the_denoise_loop_from_an_image_keeps_the_contract_with_mixed_steps_and_guidance() -> None:
    cases = [
        first_frame(0, steps=4, guidance_scale=5.0),
        first_frame(1, steps=2, guidance_scale=3.0),
        first_frame(2, steps=3, guidance_scale=1.0),
        first_frame(3, steps=4, guidance_scale=3.0, flow_shift=5.0),
    ]
    report = check("denoise_first_frame", cases, None)
    assert report.units == (4, 2, 3, 4)
    assert report.batch_max >= 2
    assert report.forwards_shared < report.forwards_alone


def noisy(index: int, noise_level: float = 0.7, **changes: Any) -> LoopCase:
    """A case of the denoise loop that samples with noise and captures it."""
    case = features(index, sampler="flow_sde", noise_level=noise_level, **changes)
    request = replace(case.request, outputs=OutputSpec(video=True, capture=Capture.BEHAVIOR))
    return replace(case, request=request)


@pytest.mark.row("LOOP-01", "LOOP-02", "LOOP-03", "LOOP-04", "LOOP-05", "LOOP-07")
def test_the_denoise_loop_keeps_the_contract_with_noise_of_several_levels() -> None:
    cases = [
        noisy(0, steps=4),
        noisy(1, steps=3, noise_level=0.3, guidance_scale=5.0),
        noisy(2, steps=4, noise_level=0.0),
        noisy(3, steps=2),
    ]
    report = check("denoise", cases, None)
    assert report.units == (4, 3, 4, 2)
    # Any levels share a forward: the noise is drawn after it.
    assert report.batch_max >= 3


def test_a_captured_trajectory_is_what_was_sampled_and_changes_no_bit() -> None:
    model, case = embedded_model(), noisy(1, steps=4)
    plain = replace(case.request, outputs=OutputSpec(video=True))
    states: list[DenoiseState] = []
    kernel = model.kernels["denoise"]
    with_it = run_loop(kernel, case.request, case.inputs, model, on_step=states.append)
    without: list[DenoiseState] = []
    bare = run_loop(kernel, plain, case.inputs, model, on_step=without.append)
    assert bare.digests == with_it.digests
    assert set(bare.values) == {"latents"}
    assert [kernel.state_bytes(a) for a in states] == [kernel.state_bytes(b) for b in without]
    assert all(state.trajectory is None for state in without)
    captured = Captured.of(with_it.values["trajectory"])
    assert len(captured.latents) == 5
    for state, latents in zip(states, captured.latents[1:], strict=True):
        assert torch.equal(state.latents, latents)
    # The last step adds no noise.
    assert len(captured.log_probs) == 3
    assert captured.sampler == "flow_sde"
    assert captured.attention_backend == "native"
    assert captured.fingerprint["torch"] == torch.__version__


def test_of_a_video_from_an_image_the_held_frame_is_no_part_of_the_likelihood() -> None:
    model, case = embedded_model(), first_frame(0, steps=3, sampler="flow_sde", noise_level=0.7)
    request = replace(case.request, outputs=OutputSpec(video=True, capture=Capture.BEHAVIOR))
    kernel = model.kernels["denoise_first_frame"]
    made = Captured.of(run_loop(kernel, request, case.inputs, model).values["trajectory"])
    still = replace(request, sampling=replace(request.sampling, num_frames=1))
    alone = first_frame(0, steps=3, num_frames=1)
    held = Captured.of(run_loop(kernel, still, alone.inputs, model).values["trajectory"])
    assert len(made.log_probs) == 2
    assert all(value != 0.0 for value in made.log_probs)
    assert held.log_probs == (0.0, 0.0)


@pytest.mark.parametrize("changes", [{"sampler": ""}, {"noise_level": 0.3}, {"seed": 9}])
def test_a_snapshot_of_other_noise_is_refused(changes: dict[str, Any]) -> None:
    model, case = embedded_model(), noisy(1, steps=4)
    kernel = model.kernels["denoise"]
    ref = LoopRef(request_id="r", node_id="n", attempt=1)
    saved = decode(save_state(kernel, kernel.init_state(ref, case.request, case.inputs, model)))
    other = replace(case.request, sampling=replace(case.request.sampling, **changes))
    with pytest.raises(SnapshotMismatch):
        load_state(kernel, saved, ref, other, model)


def test_steps_of_two_samplers_never_share_a_forward() -> None:
    model = embedded_model()
    keys = set()
    for case in (features(0, steps=4), noisy(0, steps=4)):
        kernel = model.kernels["denoise"]
        state = kernel.init_state(
            LoopRef(request_id="r", node_id="n", attempt=1), case.request, case.inputs, model
        )
        plan = kernel.plan_step(state, PlanContext(model_instance_id="m"))
        assert plan is not None
        keys.add(plan.units[0].batch_key)
    assert len(keys) == 2


def test_steps_with_and_without_an_image_never_share_a_forward() -> None:
    model = embedded_model()

    def batch_key(loop_id: str, case: LoopCase) -> str:
        kernel = model.kernels[loop_id]
        state = kernel.init_state(
            LoopRef(request_id="r", node_id="n", attempt=1), case.request, case.inputs, model
        )
        plan = kernel.plan_step(state, PlanContext(model_instance_id="m"))
        assert plan is not None
        return plan.units[0].batch_key

    assert batch_key("denoise", features(0)) != batch_key("denoise_first_frame", first_frame(0))
    assert batch_key("denoise", features(0)) == batch_key("denoise", features(1))


@pytest.mark.row("LOOP-01", "LOOP-02", "LOOP-03", "LOOP-04", "LOOP-05", "LOOP-07", "VAL-01")
def test_the_image_encode_loop_keeps_the_contract() -> None:
    cases = [image(0), image(1, width=32), image(2)]
    report = check("vae_encode", cases, None)
    assert report.units == (1, 1, 1)
    assert report.batch_max == 1


@pytest.mark.row("LOOP-01", "LOOP-07")
def test_the_denoise_loop_keeps_the_contract_where_no_rows_may_share_a_forward() -> None:
    cases = [features(i, steps=2, width=16, height=16) for i in range(2)]
    report = check("denoise", cases, None)
    assert report.batch_max == 1


@pytest.mark.row("LOOP-01", "LOOP-02", "LOOP-03", "LOOP-04", "LOOP-05", "LOOP-07", "VAL-01")
def test_the_decode_loop_keeps_the_contract() -> None:
    cases = [latents(0, steps=1), latents(1, steps=1, num_frames=5), latents(2, steps=1)]
    report = check("decode", cases, None)
    assert report.units == (3, 2, 3)
    assert report.batch_max == 1


@pytest.mark.row("LOOP-01", "LOOP-02", "LOOP-03", "LOOP-04", "LOOP-05", "LOOP-07", "VAL-01")
def test_the_score_loop_keeps_the_contract() -> None:
    cases = [latents(i, steps=1, kind=RequestKind.GENERATION) for i in range(3)]
    report = check("latent_score", cases, None)
    assert report.units == (5, 5, 5)
    assert report.batch_max >= 2
