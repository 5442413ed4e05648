"""What a policy did, captured in process: the record, its artifact, and no changed bit."""

import io
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from PIL import Image

from fastvideo.artifacts.state import artifact_id_of
from fastvideo.engine.engine import Engine
from fastvideo.engine.results import Generation
from fastvideo.errors import InvalidField
from fastvideo.ids import derived_id
from fastvideo.media.tensors import decode_tensors
from fastvideo.model.caching import CacheOutcome
from fastvideo.requests.types import Capture, OutputSpec, RequestKind
from fastvideo.scheduling.policy import SchedulingPolicy

WAIT_S_MAX = 120.0
PROMPT = "a red three moving left"
NOISY: dict[str, Any] = {"prompt": PROMPT, "sampler": "flow_sde", "seed": 7, "steps": 5}
CAPTURING = OutputSpec(video=True, capture=Capture.BEHAVIOR)
POLICY = SchedulingPolicy(resident_requests_max=1, residency_seconds_min=0, snapshot_overhead_max=0)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(threads=1) as engine:
        yield engine


def run(engine: Engine, **options: Any) -> Generation:
    return engine.submit(**{**NOISY, "outputs": CAPTURING, **options}).result(WAIT_S_MAX)


@pytest.mark.row("TRL-17")
def test_a_sample_is_recorded_with_everything_that_it_depended_on(engine: Engine) -> None:
    made = run(engine, noise_level=0.5, guidance_scale=2.0)
    [found] = made.behaviors
    record = found.record
    assert found.behavior_id == derived_id("bhv", made.request_id, "denoise", "0")
    trajectory_id = artifact_id_of(made.request_id, "write", "trajectory")
    assert (record.request_id, record.model_id) == (made.request_id, "moving-digits")
    assert (record.program_id, record.loop_id) == ("text_to_video", "denoise")
    assert record.weights_version == record.policy_version != ""
    assert (record.seeds, record.sample_index, record.attempt) == ((7,), 0, 1)
    assert (record.sampler, record.noise_level) == ("flow_sde", 0.5)
    assert len(record.scheduler_trajectory) == 6
    assert len(record.timesteps) == 5
    assert len(record.logprobs) == 4
    assert record.latents == (trajectory_id,)
    assert record.guidance_settings["scale"] == "2.0"
    assert record.guidance_settings["policy"] == "classifier_free"
    assert set(record.reward_inputs) == {"prompt_sha256", "video"}
    assert PROMPT not in repr(record)
    assert record.precision == "float32"
    assert record.attention_backend == "native"
    assert record.deterministic_flags
    assert record.fingerprint["threads"] == "1"
    assert {lookup.outcome for lookup in record.cache_assumptions} <= {
        CacheOutcome.HIT,
        CacheOutcome.MISS,
    }
    assert len({lookup.key_digest for lookup in record.cache_assumptions}) == 2
    ids = {artifact.record.artifact_id for artifact in made.artifacts}
    assert set(record.artifact_references) == ids
    stored = decode_tensors(made.artifact(trajectory_id))
    assert stored["latents"].shape == (6, 8, 3, 6, 6)
    assert stored["log_probs"].tolist() == list(record.logprobs)
    assert torch.equal(stored["latents"][-1:], stored["final"])


@pytest.mark.parametrize("sampler", [None, "flow_sde"])
def test_capturing_changes_no_bit_and_costs_nothing_without(
    engine: Engine, sampler: str | None
) -> None:
    plain = run(engine, sampler=sampler, outputs=OutputSpec(video=True))
    made = run(engine, sampler=sampler)
    assert plain.latents_digest == made.latents_digest
    assert plain.artifacts[0].record.digest == made.artifacts[0].record.digest
    assert plain.behaviors == ()
    [found] = made.behaviors
    # A deterministic sampler draws nothing, so nothing of it is likely or unlikely.
    assert len(found.record.logprobs) == (4 if sampler else 0)


def test_a_group_of_samples_gives_what_each_gives_alone(engine: Engine) -> None:
    alone = [run(engine, seed=seed).behaviors[0].record for seed in (1, 2, 3)]
    handles = [engine.submit(**{**NOISY, "seed": seed, "outputs": CAPTURING}) for seed in (1, 2, 3)]
    together = [handle.result(WAIT_S_MAX).behaviors[0].record for handle in handles]
    assert [r.trajectory_digest for r in together] == [r.trajectory_digest for r in alone]
    assert [r.logprobs for r in together] == [r.logprobs for r in alone]
    assert len({record.trajectory_digest for record in alone}) == 3


def test_latents_alone_and_a_video_from_an_image_are_recorded_too(engine: Engine) -> None:
    sample = run(
        engine, kind=RequestKind.TRAINING_SAMPLE, outputs=OutputSpec(capture=Capture.BEHAVIOR)
    )
    names = [artifact.record.name for artifact in sample.artifacts]
    assert names == ["latents.safetensors", "trajectory.safetensors"]
    assert len(sample.behaviors[0].record.latents) == 2
    from_image = run(engine, image=_picture())
    assert from_image.behaviors[0].record.loop_id == "denoise_first_frame"
    assert "image" in from_image.behaviors[0].record.reward_inputs


def _picture() -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (48, 48), (200, 30, 30)).save(data, "PNG")
    return data.getvalue()


def test_what_cannot_be_recorded_is_refused_by_field(engine: Engine) -> None:
    with pytest.raises(InvalidField, match=r"outputs\.capture"):
        engine.submit(
            PROMPT, kind=RequestKind.ENCODING, outputs=OutputSpec(capture=Capture.BEHAVIOR)
        )
    with pytest.raises(InvalidField, match=r"sampling\.sampler"):
        engine.submit(PROMPT, sampler="ddim")
    with pytest.raises(InvalidField, match=r"sampling\.noise_level"):
        engine.submit(PROMPT, noise_level=0.5)


def test_a_sample_that_is_set_aside_keeps_its_trajectory(monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(threads=1, policy=POLICY) as engine:
        alone = run(engine, steps=40)
        executor = engine._executor
        begun, asked = threading.Event(), threading.Event()
        execute, snapshot = executor.execute, executor.snapshot
        saved: list[Any] = []

        def watched(command: Any) -> Any:
            executed = execute(command)
            if sum("/denoise/" in result.unit_id for result in executed.results) >= 1:
                begun.set()
                asked.wait(WAIT_S_MAX)
            return executed

        monkeypatch.setattr(executor, "execute", watched)

        def kept(command: Any) -> Any:
            saved.append(snapshot(command))
            return saved[-1]

        monkeypatch.setattr(executor, "snapshot", kept)
        long = engine.submit(**{**NOISY, "steps": 40, "outputs": CAPTURING})
        assert begun.wait(WAIT_S_MAX)
        short = engine.submit(**{**NOISY, "steps": 2}, priority=5)
        asked.set()
        short.result(WAIT_S_MAX)
        moved = long.result(WAIT_S_MAX)
    assert [event.error for event in saved] == [None]
    wanted, found = alone.behaviors[0].record, moved.behaviors[0].record
    assert found.trajectory_digest == wanted.trajectory_digest
    assert found.logprobs == wanted.logprobs
    assert found.cache_assumptions
