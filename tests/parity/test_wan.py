"""Wan against `diffusers.WanPipeline` on the embedded checkpoint: C0 and C1."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from fastvideo.errors import InvalidField
from fastvideo.loops.contract import StepContext
from fastvideo.loops.runner import run_loop
from fastvideo.model.prompts import clean_prompt
from fastvideo.model.specs import ParityTestSpec
from fastvideo.models.parity import ParityReport, format_report, parity_checks
from fastvideo.models.registry import load_instance_parts
from fastvideo.models.resident import StandaloneModel
from fastvideo.models.wan.loops.denoise import DenoiseKernel, DenoiseOutput, DenoiseState
from fastvideo.models.wan.parity import component_parity, parity_report, trajectory_parity
from fastvideo.scheduling.work import WorkUnit
from tests.parity.wan import (
    PROMPT,
    embedded_entry,
    embedded_model,
    generation,
    sampling,
    upstream_pipeline,
)

COMPONENTS = ("tokenizer", "text_encoder", "transformer", "scheduler", "vae")


@pytest.mark.row("LAD-01", "CKP-06", "PHX-01", "MOD-06")
def test_every_component_equals_its_upstream_object() -> None:
    found = {
        part.component_id: part.max_abs_difference
        for part in component_parity(embedded_model(), upstream_pipeline(), PROMPT)
    }
    assert found == dict.fromkeys(COMPONENTS, 0.0)


@pytest.mark.row("LAD-02", "MDL-01", "GUI-01")
@pytest.mark.parametrize("guidance", [1.0, 5.0])
@pytest.mark.parametrize("size", [(48, 48), (32, 48)])
def test_latents_and_frames_equal_the_pipeline(guidance: float, size: tuple[int, int]) -> None:
    check_case(sampling(width=size[0], height=size[1], steps=4, guidance_scale=guidance, seed=3))


@pytest.mark.slow
@pytest.mark.row("LAD-02", "MDL-01")
@pytest.mark.parametrize(
    ("seed", "steps", "guidance", "size"),
    list(product([0, 1, 2], [4, 10], [1.0, 5.0], [(48, 48), (32, 48)])),
)
def test_latents_and_frames_equal_the_pipeline_throughout(
    seed: int, steps: int, guidance: float, size: tuple[int, int]
) -> None:
    width, height = size
    check_case(
        sampling(width=width, height=height, steps=steps, guidance_scale=guidance, seed=seed)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"num_frames": 1},
        {"num_frames": 17},
        {"width": 16, "height": 16},
        {"width": 96, "height": 64},
        {"flow_shift": 1.0},
        {"flow_shift": 7.5},
        {"steps": 1},
        {"steps": 2},
        {"guidance_scale": 1.5},
    ],
    ids=str,
)
def test_unusual_requests_equal_the_pipeline_too(changes: dict[str, Any]) -> None:
    check_case(replace(sampling(steps=4, guidance_scale=5.0, seed=11), **changes))


def check_case(params: Any) -> None:
    found = trajectory_parity(embedded_model(), upstream_pipeline(), PROMPT, params)
    assert found.latents.differences == (0.0,) * params.steps
    assert found.latents.first_step is None
    assert found.frames_max_difference == 0


@pytest.mark.row("LAD-02")
def test_the_first_divergence_is_reported_with_its_step() -> None:
    model = embedded_model()
    kernels = {**model.kernels, "denoise": OffBySomeAtStep(model.card.loops["denoise"], 2)}
    wrong = StandaloneModel(card=model.card, parts=replace(model.parts, kernels=kernels))

    found = trajectory_parity(wrong, upstream_pipeline(), PROMPT, sampling(steps=4))

    assert found.latents.first_step == 2
    assert found.latents.differences[:2] == (0.0, 0.0)
    report = ParityReport(
        model_id=model.card.model_id, reference="reference", components=(), trajectories=(found,)
    )
    assert not report.passes
    assert "step 2" in format_report(report)


@pytest.mark.row("LAD-07")
def test_each_tap_is_held_to_its_own_tolerance_and_a_failed_rung_is_the_last() -> None:
    layer = "blocks.1.attn1.to_q"
    cases = [sampling(steps=1)]
    exact = parity_report(embedded_model(), upstream_pipeline(), PROMPT, cases, layers=True)
    assert exact.passes
    layers = {tap.tap for part in exact.components for tap in part.layers}
    assert f"transformer/{layer}" in layers
    assert {tap.partition("/")[0] for tap in layers} >= {"transformer", "vae"}
    assert len(exact.trajectories) == 1

    # One bias is a little off: what comes after it is, too.
    wrong = _with_bias(layer, 1e-3)
    failed = parity_report(wrong, upstream_pipeline(), PROMPT, cases, layers=True)
    assert not failed.passes
    first = failed.first_failure
    assert first is not None
    assert (first.rung, first.tap) == ("C0", f"transformer/{layer}")
    assert (failed.not_run, failed.trajectories) == (("C1",), ())
    assert "C1 not run: transformer/" in format_report(failed)
    checks = parity_checks(failed, "card", {})
    assert next(check.subject for check in checks if not check.passed) == first.tap

    # A card that allows the layers of the blocks this much, and their sum at the end no more.
    allowed = [
        ParityTestSpec(name="transformer", rung="C0", max_abs_difference=0.0),
        ParityTestSpec(name="transformer/*", rung="C0", max_abs_difference=10.0),
    ]
    near = parity_report(_allowing(wrong, *allowed), upstream_pipeline(), PROMPT, cases)
    first = near.first_failure
    assert first is not None
    assert (first.tap, near.not_run) == ("transformer", ("C1",))

    # And one that allows the whole of it: then the next rung is run, and fails by itself.
    whole = ParityTestSpec(name="transformer", rung="C0", max_abs_difference=10.0)
    next_rung = parity_report(_allowing(wrong, whole), upstream_pipeline(), PROMPT, cases)
    first = next_rung.first_failure
    assert first is not None
    assert (first.rung, first.tap, first.first_step) == ("C1", "latents", 0)
    assert next_rung.not_run == ()


def _with_bias(layer: str, added: float) -> StandaloneModel:
    """The model with another first bias of a layer.

    It is loaded anew, not copied: where a weight lies in memory can change a product's last bit.
    """
    entry = embedded_entry()
    parts = load_instance_parts(entry.card, entry.require_checkpoint())
    transformer = parts.components["transformer"]
    with torch.no_grad():
        transformer.module.get_submodule(layer).bias[0] += added
    return StandaloneModel(card=entry.card, parts=parts)


def _allowing(model: StandaloneModel, *tests: ParityTestSpec) -> StandaloneModel:
    """The model, by a card with other tests of the transformer."""
    transformer = replace(model.card.components["transformer"], parity_tests=tests)
    components = {**model.card.components, "transformer": transformer}
    return replace(model, card=replace(model.card, components=components))


class OffBySomeAtStep(DenoiseKernel):
    """A denoise loop with a fault at one step."""

    def __init__(self, spec: Any, step: int) -> None:
        super().__init__(spec)
        self._step = step

    def run_step(
        self, batch: Sequence[tuple[DenoiseState, WorkUnit]], instance: Any, context: StepContext
    ) -> Sequence[DenoiseOutput]:
        outputs = super().run_step(batch, instance, context)
        return [
            replace(output, latents=output.latents + 1e-6)
            if unit.step_range.start == self._step
            else output
            for (_, unit), output in zip(batch, outputs, strict=True)
        ]


@pytest.mark.row("GUI-02")
def test_batched_guidance_equals_two_forwards_and_costs_one() -> None:
    model = embedded_model()
    request = generation(steps=3, guidance_scale=5.0)
    features = run_loop(model.kernels["encode"], request, {}, model).values
    batched, apart = StepContext(), StepContext()

    together = run_loop(model.kernels["denoise"], request, features, model, context=batched)
    two_forwards = run_loop(
        OneRowAForward(model.card.loops["denoise"]), request, features, model, context=apart
    )

    assert together.digests == two_forwards.digests
    assert (batched.forwards, apart.forwards) == (3, 6)


class OneRowAForward(DenoiseKernel):
    """A denoise loop on a machine where no two rows may share a forward."""

    def run_step(
        self, batch: Sequence[tuple[DenoiseState, WorkUnit]], instance: Any, context: StepContext
    ) -> Sequence[DenoiseOutput]:
        with pytest.MonkeyPatch.context() as patch:
            transformer = type(instance.components["transformer"])
            patch.setattr(transformer, "measured_rows_max", lambda *_, **__: 1)
            return super().run_step(batch, instance, context)


@pytest.mark.row("GUI-01")
def test_a_negative_prompt_guides_as_in_the_pipeline() -> None:
    model, reference = embedded_model(), upstream_pipeline()
    request = generation(negative_prompt="a blue &amp; one", steps=3, guidance_scale=4.0, seed=5)
    features = run_loop(model.kernels["encode"], request, {}, model).values
    ours = run_loop(model.kernels["denoise"], request, features, model).values["latents"]
    theirs = reference(
        prompt=PROMPT,
        negative_prompt="a blue &amp; one",
        width=48,
        height=48,
        num_frames=9,
        num_inference_steps=3,
        guidance_scale=4.0,
        generator=torch.Generator("cpu").manual_seed(5),
        max_sequence_length=32,
        output_type="latent",
    ).frames
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "text",
    [
        "  a red\n\tthree  moving left ",
        "&amp;lt;b&amp;gt; fish &amp;amp; chips",
        "caf\u00c3\u00a9 \u2019quoted\u2019",
        "one\u00a0two\u2003three\u3000four",
        "a\x1cb\x1fc\x85d",
        "\ufb01ne \uff21\uff22",
    ],
)
def test_prompts_are_cleaned_as_the_pipeline_cleans_them(text: str) -> None:
    from diffusers.pipelines.wan.pipeline_wan import prompt_clean

    assert clean_prompt(text) == prompt_clean(text)


def test_a_prompt_of_the_text_length_is_taken_and_one_more_token_is_refused() -> None:
    model = embedded_model()
    kernel = model.kernels["encode"]
    fits = " ".join(["red"] * 31)
    features = run_loop(kernel, generation(prompt=fits), {}, model).values["text_features"]
    assert features.shape == (2, 32, 64)
    with pytest.raises(InvalidField) as refused:
        run_loop(kernel, generation(prompt=f"{fits} red"), {}, model)
    assert refused.value.reason == "PROMPT_TOO_LONG"
    assert refused.value.field == "prompt"


def test_the_text_of_an_over_long_negative_prompt_names_it() -> None:
    model = embedded_model()
    with pytest.raises(InvalidField) as refused:
        run_loop(model.kernels["encode"], generation(negative_prompt="red " * 40), {}, model)
    assert refused.value.field == "negative_prompt"
