"""A run again: every digest equal, or the first difference named by step, component and layer."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from fastvideo.deployment.catalog import Catalog
from fastvideo.engine.engine import Engine
from fastvideo.errors import ResourceExhausted
from fastvideo.loops.guidance import ClassifierFree
from fastvideo.loops.samplers import UniPC
from fastvideo.model.manifest import build_manifest, write_manifest
from fastvideo.models.wan.loops.denoise import DenoiseKernel, DenoiseState
from fastvideo.recompute.host import HostSetup
from fastvideo.replay.types import ReplayReport
from fastvideo.requests.types import OutputSpec, RequestStatus, TraceLevel
from tests.families.recorded import record

Replay = Callable[..., ReplayReport]

MODEL = "moving-digits"
PLAIN = OutputSpec(video=True, latents=True)
DETAILED = replace(PLAIN, trace=TraceLevel.DETAIL)
LAYER = "blocks.1.attn1.to_q"
# Guidance and sampler go wrong from this step on, counted from 0.
WRONG_FROM = 2


def asked(**options: Any) -> dict[str, Any]:
    return {"prompt": "a red three moving left", "seed": 7, "steps": 4, "outputs": PLAIN} | options


def test_runs_that_shared_forwards_give_the_same_bits_again_each_alone(
    engine: Engine, replay_run: Replay
) -> None:
    runs, sources = record(
        engine,
        asked(),
        asked(prompt="a blue seven moving up", seed=2, steps=5, guidance_scale=1.0),
        asked(seed=3, size=(32, 48), sampler="flow_sde", noise_level=0.5),
    )
    for run in runs:
        report = replay_run(run, sources)
        assert report.equal, report
        assert report.promise.kind == "bits"
        # Every step, the latents and both files.
        assert report.compared == len(run.steps) + 3
        assert (report.differing, report.first_divergence) == (0, None)
        assert report.seconds > 0
        assert report.original_seconds > 0


def test_a_run_that_was_cut_short_is_compared_as_far_as_it_came(
    engine: Engine, replay_run: Replay
) -> None:
    [whole], sources = record(engine, asked(seed=11))
    so_far = replace(
        whole,
        status=RequestStatus.CANCELLED,
        steps=whole.steps[:4],
        latents_digest="",
        artifacts=(),
    )
    report = replay_run(so_far, sources)
    assert (report.equal, report.compared) == (True, 4)
    nothing = replay_run(replace(so_far, steps=()))
    assert (nothing.equal, nothing.compared) == (True, 0)
    assert "nothing" in nothing.headline


def test_bits_are_not_promised_where_the_environment_is_another_one(
    engine: Engine, replay_run: Replay
) -> None:
    [run], sources = record(engine, asked(seed=12))
    elsewhere = replace(run, fingerprint={**run.fingerprint, "cpu": "another one"})
    report = replay_run(elsewhere, sources)
    assert report.equal
    assert report.promise.kind == "tolerance"
    assert set(report.promise.differences) == {"cpu"}
    assert "cpu" in report.promise.reason

    # Digests that differ are within a tolerance only where the latents themselves are near.
    changed = replace(
        elsewhere,
        steps=tuple(replace(step, state_digest="0" * 64) for step in run.steps),
        latents_digest="0" * 64,
    )
    near = replay_run(changed, sources, tolerance=1e-6)
    assert near.equal
    assert near.first_divergence is not None
    assert "tolerance" in near.headline
    [latents] = [one for one in near.comparisons if one.subject == "latents"]
    assert latents.max_abs_difference == 0.0
    gone = replay_run(replace(changed, artifacts=()), sources, tolerance=1e-6)
    assert not gone.equal
    [latents] = [one for one in gone.comparisons if one.subject == "latents"]
    assert "only digests" in latents.detail


@pytest.mark.row("OBS-04")
def test_one_changed_weight_is_found_and_its_layer_named(
    engine: Engine, replay_run: Replay, tmp_path: Path
) -> None:
    [run], sources = record(engine, asked(outputs=DETAILED))
    assert replay_run(run, sources, detail=True).equal

    report = replay_run(run, sources, HostSetup(checkpoints=_changed_weight(tmp_path)))
    first = report.first_divergence
    assert not report.equal
    assert first is not None
    assert (first.subject, first.step) == ("denoise 1/4", 1)
    assert (first.component, first.layer) == ("transformer", LAYER)
    assert report.headline.endswith(f"denoise 1/4, transformer, {LAYER}")
    assert report.promise.kind == "none"
    assert "weights_version" in report.promise.differences


def test_one_changed_guidance_value_is_found_and_named(engine: Engine, replay_run: Replay) -> None:
    [run], sources = record(engine, asked(outputs=DETAILED))
    kernel = _WrongGuidance(Catalog.load([MODEL]).get(MODEL).card.loops["denoise"])
    report = replay_run(run, sources, HostSetup(kernels={"denoise": kernel}))
    _check_found(report, "guidance")


def test_one_changed_coefficient_of_the_sampler_is_found_and_named(
    engine: Engine, replay_run: Replay
) -> None:
    [run], sources = record(engine, asked(outputs=DETAILED))
    [instance] = engine._residents.all()
    sampler = _WrongSampler(instance.components["scheduler"])
    report = replay_run(run, sources, HostSetup(components={"scheduler": sampler}))
    _check_found(report, "sampler")


def test_without_layers_in_the_log_the_step_is_named_and_how_to_get_them(
    engine: Engine, replay_run: Replay, tmp_path: Path
) -> None:
    [run], sources = record(engine, asked())
    report = replay_run(run, sources, HostSetup(checkpoints=_changed_weight(tmp_path)))
    first = report.first_divergence
    assert first is not None
    assert (first.subject, first.component, first.layer) == ("denoise 1/4", "", "")
    assert "--trace detail" in first.detail
    assert replay_run(run, sources, detail=True).headline.endswith("no layers of it to compare")


def test_every_layer_of_every_step_is_compared_when_asked(
    engine: Engine, replay_run: Replay, tmp_path: Path
) -> None:
    # A prompt of its own: where the features are in the cache, the encoder runs no layer.
    [run], sources = record(engine, asked(outputs=DETAILED, prompt="a green two moving down"))
    setup = HostSetup(checkpoints=_changed_weight(tmp_path))
    report = replay_run(run, sources, setup, detail=True)
    layers = [one for one in report.comparisons if one.subject.endswith("layers")]
    traced = [step for step in run.steps if step.components is not None]
    assert len(layers) == len(traced) > 4
    assert next(one for one in layers if one.node_id == "encode").equal
    wrong = [one for one in layers if one.node_id == "denoise"]
    assert [one.equal for one in wrong] == [False] * 4
    assert (wrong[0].component, wrong[0].layer) == ("transformer", LAYER)
    # Later steps begin from other latents.
    assert wrong[1].layer != LAYER


def _check_found(report: ReplayReport, component: str) -> None:
    first = report.first_divergence
    assert not report.equal
    assert first is not None
    assert first.subject == f"denoise {WRONG_FROM + 1}/4"
    assert first.step == WRONG_FROM + 1
    assert (first.component, first.layer) == (component, "")
    # Weights, card and machine are the same: the loop's code is not, and bits were promised.
    assert report.promise.kind == "bits"


def _changed_weight(folder: Path) -> Path:
    """A folder with a copy of the model's checkpoint in which one element is another."""
    entry = Catalog.load([MODEL]).get(MODEL)
    copy = folder / entry.card.checkpoint
    shutil.copytree(entry.require_checkpoint(), copy)
    path = copy / "transformer" / "diffusion_pytorch_model.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    weight = tensors[f"{LAYER}.weight"]
    assert weight.numel() > 1000
    weight[3, 5] += 0.125
    save_file(tensors, path, metadata=metadata)
    write_manifest(copy, build_manifest(copy))
    return folder


@dataclass(frozen=True, slots=True)
class _OtherScale(ClassifierFree):
    """Guidance whose scale is a little off."""

    def combine(self, predictions: Any, scale: float) -> torch.Tensor:
        # No super(): it does not work in a dataclass with slots.
        return ClassifierFree.combine(self, predictions, scale + 1e-3)


class _WrongGuidance(DenoiseKernel):
    """Denoising that is guided otherwise from one step on."""

    def run_step(self, batch: Any, instance: Any, context: Any) -> Any:
        wrong = [
            (_misguided(state) if unit.step_range.start >= WRONG_FROM else state, unit)
            for state, unit in batch
        ]
        return super().run_step(wrong, instance, context)


def _misguided(state: DenoiseState) -> DenoiseState:
    return replace(state, policy=_OtherScale())


class _WrongSampler(UniPC):
    """A sampler with one coefficient that is a little off from one step on."""

    def __init__(self, own: UniPC) -> None:
        self.__dict__.update(vars(own))

    def step(self, schedule: Any, state: Any, velocity: Any, sample: Any) -> Any:
        stepped, latents = super().step(schedule, state, velocity, sample)
        return stepped, latents * (1 + 1e-6) if state.step_index >= WRONG_FROM else latents


def test_weights_that_the_free_memory_does_not_hold_are_not_loaded(
    engine: Engine, replay_run: Replay
) -> None:
    (run,), sources = record(engine, asked(steps=1))
    with pytest.raises(ResourceExhausted) as refused:
        replay_run(run, sources, HostSetup(free_bytes=1_000))
    error = refused.value
    assert (error.reason, error.subject) == ("REPLAY_MEMORY", "memory")
    assert int(error.attributes["missing_bytes"]) == int(error.attributes["needed_bytes"]) - 1_000
    assert MODEL in error.message
