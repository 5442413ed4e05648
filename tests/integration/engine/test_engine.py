"""The in-process engine: the loops that serve, driven by the same core, with no server."""

import hashlib
import itertools
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastvideo
from fastvideo.deployment.fleet import PriceSource, choose
from fastvideo.engine.engine import Engine
from fastvideo.engine.results import RequestHandle, Video
from fastvideo.errors import (
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidField,
    NotFound,
    Unavailable,
)
from fastvideo.media.tensors import decode_tensors
from fastvideo.media.video import probe_mp4
from fastvideo.model.documents import InvalidDocument
from fastvideo.requests.types import OutputSpec, RequestKind
from tests.families.served import standing_still

PROMPT = "a red three moving left"
WAIT_S_MAX = 120.0


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    file = tmp_path_factory.mktemp("deployment") / "deployment.yaml"
    file.write_text("models: [moving-digits]\nthreads: 1\n")
    with fastvideo.Engine.from_deployment(file) as engine:
        yield engine


def _generate(engine: Engine, prompt: str = PROMPT, **options: Any) -> Video:
    return engine.generate(prompt, **{"steps": 3, "seed": 7, "timeout_s": WAIT_S_MAX} | options)


@pytest.mark.row("API-01")
def test_a_deployment_file_gives_an_engine_that_makes_a_typed_video(
    engine: Engine, tmp_path: Path
) -> None:
    video = engine.generate(
        model="moving-digits",
        program="text_to_video",
        prompt=PROMPT,
        duration=1.1,
        seed=7,
        timeout_s=WAIT_S_MAX,
    )
    assert isinstance(video, Video)
    assert video.frames.shape == (9, 48, 48, 3)
    assert video.frames.dtype == np.uint8
    assert (video.fps, video.seed, video.request.sampling.steps) == (8, 7, 20)
    assert video.duration_s == 9 / 8
    probe = probe_mp4(video.save(tmp_path / "out.mp4").read_bytes())
    assert (probe.frames, probe.fps, probe.codec) == (9, 8.0, "h264")
    # Without a model of its own a colour is only a hint, but a red digit is mostly red.
    assert video.frames[..., 0].mean() > video.frames[..., 2].mean()


def test_the_latents_are_those_of_the_digest(engine: Engine) -> None:
    outputs = OutputSpec(video=True, sheet=True, latents=True)
    video = _generate(engine, outputs=outputs)
    assert [artifact.record.name for artifact in video.artifacts] == [
        "video.mp4",
        "sheet.png",
        "latents.safetensors",
    ]
    latents = decode_tensors(video.artifacts[2].data)["latents"]
    assert hashlib.sha256(latents.numpy().tobytes()).hexdigest() == video.latents_digest


def test_the_same_seed_gives_the_same_bits_and_another_gives_others(engine: Engine) -> None:
    first, again, other = (_generate(engine, seed=seed) for seed in (1, 1, 2))
    assert first.latents_digest == again.latents_digest != other.latents_digest
    assert (first.frames == again.frames).all()
    assert first.artifacts[0].record.digest == again.artifacts[0].record.digest


def test_a_seed_that_is_left_out_is_drawn_and_reported(engine: Engine) -> None:
    drawn = _generate(engine, seed=None)
    assert "sampling.seed" in drawn.request.defaulted
    assert _generate(engine, seed=drawn.seed).latents_digest == drawn.latents_digest


def test_concurrent_requests_share_forwards_and_keep_the_bits_of_solo_runs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = [
        {"prompt": "a blue seven moving up", "steps": 6, "seed": 1},
        {"prompt": "a green five moving down", "steps": 4, "seed": 2},
        {"prompt": PROMPT, "steps": 5, "seed": 3, "guidance_scale": 1.0},
        {"prompt": PROMPT, "steps": 5, "seed": 4, "guidance_scale": 5.0},
    ]
    solo = [_generate(engine, **options).latents_digest for options in asked]
    sizes: list[int] = []
    execute = engine._executor.execute

    def watched(command: Any) -> Any:
        executed = execute(command)
        sizes.append(len({result.loop.request_id for result in executed.results}))
        return executed

    monkeypatch.setattr(engine._executor, "execute", watched)
    with standing_still(engine):
        handles = [engine.submit(**options) for options in asked]
    assert [handle.result(WAIT_S_MAX).latents_digest for handle in handles] == solo
    assert max(sizes) > 1


@pytest.mark.row("REQ-14", "REQ-15")
def test_cancel_stops_at_a_step_and_everything_is_given_back(engine: Engine) -> None:
    _generate(engine)
    before = engine.memory_bytes
    handle = engine.submit(PROMPT, steps=500, seed=1)
    _wait(lambda: handle.progress > 0.05, handle)
    handle.cancel("enough")
    with pytest.raises(Cancelled) as caught:
        handle.result(WAIT_S_MAX)
    assert caught.value.attributes["boundary"].startswith("denoise ")
    step = int(caught.value.attributes["boundary"].split()[1].split("/")[0])
    assert 0 < step < 500
    handle.cancel()
    assert engine.memory_bytes == before


@pytest.mark.row("REQ-16")
def test_a_request_that_fails_harms_no_other(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _generate(engine, seed=5).latents_digest
    kernel: Any = engine._residents.all()[0].kernels["denoise"]
    run_step = kernel.run_step

    def breaking(batch: Any, instance: Any, context: Any) -> Any:
        for state, unit in batch:
            if state.request.sampling.seed == 666 and unit.step_range.start == 1:
                raise RuntimeError("broken on purpose")
        return run_step(batch, instance, context)

    monkeypatch.setattr(kernel, "run_step", breaking)
    before = engine.memory_bytes
    good = engine.submit(PROMPT, steps=3, seed=5)
    bad = engine.submit(PROMPT, steps=3, seed=666)
    with pytest.raises(fastvideo.errors.FastVideoError, match="RuntimeError") as caught:
        bad.result(WAIT_S_MAX)
    assert "broken on purpose" not in caught.value.message
    assert good.result(WAIT_S_MAX).latents_digest == expected
    assert engine.memory_bytes == before


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"steps": 0}, "sampling.steps"),
        ({"size": (63, 64)}, "sampling.width"),
        ({"seed": -1}, "sampling.seed"),
        ({"guidance_scale": float("nan")}, "sampling.guidance_scale"),
        ({"prompt": ""}, "inputs"),
        ({"duration": 1.0, "num_frames": 9}, "duration"),
        ({"duration": -1.0}, "duration"),
        ({"program": "no_such"}, "program_id"),
    ],
)
def test_bad_input_is_refused_by_name(engine: Engine, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        _generate(engine, **options)
    assert caught.value.field.startswith(field)


def test_an_unknown_model_is_refused(engine: Engine) -> None:
    with pytest.raises(NotFound, match="moving-digits"):
        _generate(engine, model="no-such-model")


def test_a_deadline_that_passes_ends_the_request(engine: Engine) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=0.2)
    handle = engine.submit(PROMPT, steps=900, deadline=soon)
    with pytest.raises(DeadlineExceeded, match="deadline"):
        handle.result(WAIT_S_MAX)


def test_waiting_has_its_own_limit(engine: Engine) -> None:
    handle = engine.submit(PROMPT, steps=900)
    with pytest.raises(DeadlineExceeded, match="within"):
        handle.result(0.05)
    handle.cancel()
    with pytest.raises(Cancelled):
        handle.result(WAIT_S_MAX)


def test_a_program_without_frames_gives_its_artifacts(engine: Engine) -> None:
    handle = engine.submit(PROMPT, kind=RequestKind.ENCODING)
    result = handle.result(WAIT_S_MAX)
    assert not isinstance(result, Video)
    [artifact] = result.artifacts
    assert tuple(decode_tensors(artifact.data)["text_features"].shape)[1:] == (32, 64)
    with pytest.raises(FailedPrecondition, match="no video"):
        engine.generate(PROMPT, kind=RequestKind.ENCODING, timeout_s=WAIT_S_MAX)


def test_the_engine_s_card_says_what_it_serves_and_what_it_costs(engine: Engine) -> None:
    _generate(engine)
    card = engine.deployment_card()
    assert card.model_specs == ("moving-digits",)
    assert "text_to_video" in card.supported_programs
    assert {entry.phase for entry in card.cost_model.entries} >= {"denoise", "decode"}


@pytest.mark.row("DEP-02")
def test_two_engines_have_costs_of_their_own_and_a_fleet_chooses_between_them(
    engine: Engine,
) -> None:
    with Engine(threads=1, engine_id="second") as second:
        _generate(engine)
        assert second.deployment_card().cost_model.entries == ()
        _generate(second)
        before = second.deployment_card()
        request = _generate(engine, steps=4).request
        _generate(engine, steps=4)
        assert second.deployment_card() == before
        assert engine.deployment_card().cost_model != before.cost_model
        offers = [engine.offer(), second.offer()]
    route = choose(request, offers, capability="text_to_video")
    assert {one.engine_id for one in route.candidates} == {"engine", "second"}
    priced = {one.engine_id: one.price for one in route.candidates}
    assert priced == {"engine": PriceSource.MEASURED, "second": PriceSource.SCALED}


def test_a_closed_engine_ends_its_requests_and_takes_no_more() -> None:
    engine = Engine(threads=1)
    handle = engine.submit(PROMPT, steps=900)
    _wait(lambda: handle.progress > 0, handle)
    engine.close()
    with pytest.raises(Unavailable, match="closed"):
        handle.result(WAIT_S_MAX)
    with pytest.raises(Unavailable, match="closed"):
        engine.submit(PROMPT)
    engine.close()


def test_deployment_files_are_read_strictly(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Engine.from_deployment(tmp_path / "absent.yaml")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("models: [moving-digits]\nmodel: x\n")
    with pytest.raises(InvalidDocument, match="model"):
        Engine.from_deployment(wrong)


def test_the_caller_s_gradients_and_threads_are_left_alone(engine: Engine) -> None:
    _generate(engine)
    assert torch.is_grad_enabled()
    assert threading.current_thread() is threading.main_thread()


def _wait(condition: Any, handle: RequestHandle) -> None:
    for _ in itertools.takewhile(
        lambda deadline_s: time.monotonic() < deadline_s,
        itertools.repeat(time.monotonic() + WAIT_S_MAX),
    ):
        if condition() or handle.done:
            return
        threading.Event().wait(0.005)
    pytest.fail("it did not come to pass")
