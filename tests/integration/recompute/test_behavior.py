"""Behaviour replay: the ratio of what was done is 1, and a changed policy is found by step."""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch

from fastvideo.engine.engine import Engine
from fastvideo.engine.fingerprint import machine_fingerprint
from fastvideo.engine.results import Generation
from fastvideo.errors import FailedPrecondition, NotFound
from fastvideo.loops.contract import StepContext
from fastvideo.media.tensors import decode_tensors, encode_tensors
from fastvideo.recompute import behavior
from fastvideo.recompute.host import Host, HostSetup
from fastvideo.replay.types import (
    Comparison,
    LoggedRun,
    ReplayKind,
    ReplayProgress,
    ReplayReport,
    ReplayRequest,
)
from fastvideo.requests.types import Capture, OutputSpec, RequestStatus, TextPart

WAIT_S_MAX = 120.0
STEPS = 6
MODEL = "moving-digits"


class Stored:
    """The artifacts of a generation, as a replay fetches them."""

    def __init__(self, generation: Generation) -> None:
        self.artifacts = {
            artifact.record.artifact_id: artifact.data for artifact in generation.artifacts
        }

    def get(self, artifact_id: str) -> bytes:
        return self.artifacts[artifact_id]

    def blob(self, digest: str) -> bytes:
        raise NotFound(digest)


class Sampled:
    """A captured generation, and what the log says of it."""

    def __init__(self, engine: Engine, **options: Any) -> None:
        outputs = OutputSpec(video=True, capture=Capture.BEHAVIOR)
        handle = engine.submit(
            "a red three moving left", seed=7, steps=STEPS, outputs=outputs, **options
        )
        made = handle.result(WAIT_S_MAX)
        [instance] = engine._residents.all()
        self.sources = Stored(made)
        self.behavior = made.behaviors[0]
        self.run = LoggedRun(
            spec=made.request,
            status=RequestStatus.COMPLETED,
            attempt=1,
            instance=instance.state(),
            fingerprint=machine_fingerprint(1)
            | {f"{MODEL}/{name}": fact for name, fact in instance.fingerprint.items()},
            behaviors=(self.behavior.record,),
        )

    def replay(self, *, run: LoggedRun | None = None, **changes: Any) -> ReplayReport:
        told: list[ReplayProgress | Comparison] = []
        setup = HostSetup(threads=1, components=changes.pop("components", {}))
        host = Host(run or self.run, setup, self.sources)
        request = ReplayRequest(kind=ReplayKind.BEHAVIOR, **changes)
        report = behavior.replay(request, run or self.run, host, told.append)
        assert sum(isinstance(one, Comparison) for one in told) == report.compared
        return report


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def noisy(engine: Engine) -> Sampled:
    return Sampled(engine, sampler="flow_sde")


def test_of_an_unchanged_policy_every_ratio_is_one(noisy: Sampled) -> None:
    report = noisy.replay(subject_id=noisy.behavior.behavior_id)
    assert report.equal, report.headline
    assert report.promise.kind == "bits"
    # The stored trajectory, five steps that were drawn, and the last, which was not.
    assert report.compared == 1 + STEPS
    drawn = [one for one in report.comparisons if one.component == "policy"]
    assert [one.detail for one in drawn] == ["ratio 1.0"] * (STEPS - 1)
    assert report.comparisons[-1].component == "transition"
    assert report.subject_id == noisy.behavior.behavior_id


def test_steps_that_need_no_other_share_forwards_with_equal_bits(
    noisy: Sampled, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    forwards: list[int] = []
    host = Host(noisy.run, HostSetup(threads=1), noisy.sources)
    kernel: Any = host.instance.kernels["denoise"]
    run_step = kernel.run_step

    def watched(batch: Any, instance: Any, context: StepContext) -> Any:
        batches.append(len(batch))
        outputs = run_step(batch, instance, context)
        forwards.append(context.forwards)
        return outputs

    monkeypatch.setattr(kernel, "run_step", watched)
    request = ReplayRequest(kind=ReplayKind.BEHAVIOR)
    assert behavior.replay(request, noisy.run, host, lambda told: None).equal
    # The first step measures the shape alone; the run before it gave the features.
    assert max(batches) == STEPS - 1 or max(batches) == STEPS
    assert sum(batches) <= STEPS + 1


@pytest.mark.parametrize("options", [{}, {"sampler": "flow_sde", "noise_level": 0.0}])
def test_of_a_deterministic_sampler_the_transitions_are_compared(
    engine: Engine, options: dict[str, Any]
) -> None:
    report = Sampled(engine, **options).replay()
    assert report.equal, report.headline
    assert report.compared == 1 + STEPS
    assert {one.component for one in report.comparisons} == {"artifact", "transition"}


def changed_transformer(engine: Engine) -> Any:
    [instance] = engine._residents.all()
    transformer = deepcopy(instance.components["transformer"])
    with torch.no_grad():
        transformer.module.blocks[3].ffn.net[2].weight[5, 7] += 0.5
    return transformer


@pytest.mark.parametrize("options", [{}, {"sampler": "flow_sde"}])
def test_one_changed_weight_is_found_at_the_first_step(
    engine: Engine, options: dict[str, Any]
) -> None:
    report = Sampled(engine, **options).replay(
        components={"transformer": changed_transformer(engine)}
    )
    assert not report.equal
    first = report.first_divergence
    assert first is not None
    assert (first.subject, first.step) == ("denoise 1/6", 1)
    assert first.component == ("policy" if options else "transition")
    assert first.max_abs_difference
    if options:
        ratio = float(first.detail.removeprefix("ratio "))
        assert math.isfinite(ratio)
        assert ratio != 1.0
        assert "ratio" in report.headline


def test_on_another_machine_a_tolerance_holds(noisy: Sampled) -> None:
    elsewhere = replace(noisy.run, fingerprint={**noisy.run.fingerprint, "cpu": "another"})
    record = replace(
        noisy.behavior.record, logprobs=tuple(p + 1e-6 for p in noisy.behavior.record.logprobs)
    )
    near = noisy.replay(run=replace(elsewhere, behaviors=(record,)))
    assert near.equal, near.headline
    assert near.promise.kind == "tolerance"
    far = noisy.replay(run=replace(elsewhere, behaviors=(record,)), tolerance=1e-9)
    assert not far.equal
    # Where bits are promised, nothing is near enough.
    assert not noisy.replay(run=replace(noisy.run, behaviors=(record,))).equal


def test_a_trajectory_that_was_tampered_with_is_found(noisy: Sampled) -> None:
    [trajectory_id] = noisy.behavior.record.latents
    kept = noisy.sources.artifacts[trajectory_id]
    tensors = decode_tensors(kept)
    tensors["latents"][3, 0, 0, 0, 0] += 1.0
    noisy.sources.artifacts[trajectory_id] = encode_tensors(tensors)
    try:
        report = noisy.replay()
    finally:
        noisy.sources.artifacts[trajectory_id] = kept
    assert not report.equal
    assert report.first_divergence is not None
    assert report.first_divergence.component == "artifact"
    steps = {one.step for one in report.comparisons if not one.equal and one.step}
    # The step that led there and the one that went on from there.
    assert steps == {3, 4}


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda run: replace(run, behaviors=()), NotFound, "capture=behavior"),
        (
            lambda run: replace(
                run, spec=replace(run.spec, inputs=(TextPart(role="prompt", text=""),))
            ),
            FailedPrecondition,
            "prompt",
        ),
    ],
)
def test_what_cannot_be_retraced_says_why(
    noisy: Sampled, change: Callable[[LoggedRun], LoggedRun], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        noisy.replay(run=change(noisy.run))
    with pytest.raises(NotFound):
        noisy.replay(subject_id="bhv_other")
