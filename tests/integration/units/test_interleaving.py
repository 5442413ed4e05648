"""Requests of every kind in turns on one worker: the bits of requests alone, one budget."""

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fastvideo.engine.engine import Engine
from fastvideo.model.caching import CacheOutcome
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import UnitKind
from tests.families.served import standing_still

Run = Callable[..., Any]
MakeEngine = Callable[..., Engine]
Asked = dict[str, Any]

# Loops whose states name the request, or how the features were come by.
_UNLIKE = {"encode", "write"}

AR = {UnitKind.AR_PREFILL, UnitKind.AR_TOKEN}
STEPS = {UnitKind.AR_TOKEN, UnitKind.DIFFUSION_STEP, UnitKind.CHUNK_STEP}


def video(prompt: str = "a red three moving left", **options: Any) -> Asked:
    return {"model": "moving-digits", "prompt": prompt, "steps": 4, "seed": 1} | options


def pocket(program: str, prompt: str = "a red fox", **options: Any) -> Asked:
    return {"model": "pocket", "program": program, "prompt": prompt, "steps": 4} | options


def alone(engine: Engine, run_all: Run, asked: Iterable[Asked]) -> list[Any]:
    """What each request is when nothing else runs."""
    return [_bits(log, result) for [result], log in (run_all(engine, one) for one in asked)]


def together(engine: Engine, run_all: Run, asked: Iterable[Asked]) -> tuple[list[Any], Any]:
    """What the requests are when all run at once, and what ran."""
    results, log = run_all(engine, *asked)
    return [_bits(log, result) for result in results], log


def _bits(log: Any, result: Any) -> Any:
    """Every state of the loops that compute, all that they ended with, and the files.

    Encoding takes other units when its features are there already; what it hands on is compared.
    """
    states = [pair for pair in log.digests(result.request_id) if pair[0] not in _UNLIKE]
    files = [artifact.record.digest for artifact in result.artifacts]
    return states, log.named(result.request_id), dict(result.scores), files


def _first_steps(ran: Any) -> list[int]:
    """Where each request of a batch stood when it began."""
    first: dict[str, int] = {}
    for result in ran.executed.results:
        first.setdefault(result.loop.request_id, result.step_range.start)
    return list(first.values())


def _wait(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline_s
        threading.Event().wait(0.002)


def turns(log: Any, one: set[UnitKind], other: set[UnitKind]) -> int:
    """How often compute went from one set of kinds to the other."""
    order = [ran.kind in one for ran in log.batches if ran.kind in one | other]
    return sum(left != right for left, right in itertools.pairwise(order))


@pytest.mark.slow
@pytest.mark.row("LOOP-08")
def test_interleaved_equals_serial_with_shared_prompts_and_warm_caches(
    make_engine: MakeEngine, engine: Engine, run_all: Run
) -> None:
    asked = [
        video("a prompt of this test", seed=1),
        video("a prompt of this test", seed=2, steps=5),
        video("a blue five moves up", seed=3),
        pocket("paint", "a warm fox", seed=1),
        pocket("paint", "a warm fox", seed=2, guidance_scale=6.0),
        pocket("roll", "a warm fox", seed=3, steps=2, num_frames=2),
    ]
    # Each alone, with nothing in any cache.
    cold = make_engine(("pocket", "moving-digits"), tier=None)
    expected = []
    for one in asked:
        cold._executor.features.invalidate(lambda key: True)
        expected += alone(cold, run_all, [one])
    _, filling = together(engine, run_all, asked)
    found, warm = together(engine, run_all, asked)
    assert found == expected
    # The second time every text was found, in the worker's memory or in the tier.
    looked = [
        lookup.outcome
        for ran in warm.batches
        for result in ran.executed.results
        for lookup in result.cache_lookups
    ]
    assert looked
    assert set(looked) == {CacheOutcome.HIT}
    assert CacheOutcome.MISS in {
        lookup.outcome
        for ran in filling.batches
        for result in ran.executed.results
        for lookup in result.cache_lookups
    }
    assert max(ran.size for ran in warm.batches) > 1


@pytest.mark.row("LOOP-09")
def test_interleaved_equals_serial_with_mixed_step_counts(
    engine: Engine, run_all: Run, record: Run
) -> None:
    asked = [
        *(video(seed=steps, steps=steps) for steps in (2, 7, 4)),
        *(pocket("paint", seed=steps, steps=steps) for steps in (3, 9, 5)),
        *(pocket("tell", steps=steps, seed=steps) for steps in (2, 11, 6)),
        *(pocket("roll", steps=steps, num_frames=4 - steps, seed=steps) for steps in (1, 2)),
    ]
    expected = alone(engine, run_all, asked)
    with record(engine) as log:
        # The long ones begin first, so that the others join them at other steps.
        order = sorted(range(len(asked)), key=lambda index: -asked[index]["steps"])
        with standing_still(engine):
            handles = {index: engine.submit(**asked[index]) for index in order[:4]}
        _wait(lambda: any(ran.kind in STEPS for ran in log.batches))
        with standing_still(engine):
            handles |= {index: engine.submit(**asked[index]) for index in order[4:]}
        results = [handles[index].result(60.0) for index in range(len(asked))]
    assert [_bits(log, result) for result in results] == expected
    shared = [ran for ran in log.batches if ran.size > 1 and ran.kind in STEPS]
    first_steps = [_first_steps(ran) for ran in shared]
    # Requests at different steps shared forwards.
    assert any(len(set(steps)) > 1 for steps in first_steps)


@pytest.mark.row("LOOP-10", "PHX-04", "WUK-05", "WUK-06", "WUK-12")
def test_tokens_and_denoise_steps_and_encoders_and_decoders_take_turns_under_one_budget(
    engine: Engine, run_all: Run
) -> None:
    asked = [
        pocket("tell", "tell me of a fox", steps=16, seed=1),
        video(seed=2, steps=8),
        pocket("recite", "tell me of an owl", steps=12, seed=3),
        # Its frames are decoded, and its file is written, while the other video is denoised.
        video("a green four moves down", seed=4, steps=2),
        pocket("paint", "a blue owl", steps=8, seed=5),
    ]
    expected = alone(engine, run_all, asked)
    found, log = together(engine, run_all, asked)
    assert found == expected
    assert {ran.kind for ran in log.batches} >= {
        UnitKind.AR_PREFILL,
        UnitKind.AR_TOKEN,
        UnitKind.DIFFUSION_STEP,
        UnitKind.ENCODER_CHUNK,
        UnitKind.VAE_TILE,
        UnitKind.AUDIO_CHUNK,
        UnitKind.REWARD_BATCH,
        UnitKind.ARTIFACT_WRITE,
    }
    assert turns(log, AR, {UnitKind.DIFFUSION_STEP}) >= 4
    # One budget: the worker's one compute slot is reserved while any of them computes, and no
    # two compute at once.
    computing = [ran for ran in log.batches if ran.thread == "engine"]
    assert {ran.reserved["compute_slots"] for ran in computing} == {1}
    assert turns(log, {UnitKind.VAE_TILE}, {UnitKind.DIFFUSION_STEP}) >= 3
    # Chunks of texts are admitted like steps: with the memory that they declare.
    chunks = [ran for ran in computing if ran.kind is UnitKind.ENCODER_CHUNK]
    assert chunks
    assert all(ran.reserved["memory_bytes/activations"] > 0 for ran in chunks)
    # Files are written beside compute: on no step's thread, and in no step's place.
    written = [ran for ran in log.batches if ran.kind is UnitKind.ARTIFACT_WRITE]
    assert written
    assert all(ran.thread.startswith("engine-io") for ran in written)
    assert all(ran.reserved["io_slots"] >= 1 for ran in written)
    spans = sorted((ran.began_s, ran.ended_s) for ran in computing)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    assert engine._core.reserved["compute_slots"] == 0


@pytest.mark.row("GUI-09")
def test_the_gates_of_interleaved_requests_do_not_mix(engine: Engine, run_all: Run) -> None:
    asked = [
        pocket("paint", prompt, steps=12, seed=seed, guidance_scale=scale)
        for prompt, seed, scale in (("a red fox", 1, 3.0), ("an owl", 2, 9.0), ("zzz", 3, 1.5))
    ]
    expected = alone(engine, run_all, asked)
    found, log = together(engine, run_all, asked)
    assert found == expected
    steps = [ran for ran in log.batches if ran.kind is UnitKind.DIFFUSION_STEP]
    assert len({ran.executed.results[0].loop.request_id for ran in steps}) > 1
    # Each gate opened at its own steps: they differ in how many ran both branches, and a delta
    # that was computed is reused.
    guided = [scores["guided_steps"] for _, _, scores, _ in found]
    assert all(2 <= count < 12 for count in guided)


@pytest.mark.slow
@pytest.mark.row("SCH-12")
def test_a_stream_of_short_answers_cannot_starve_a_long_video(
    engine: Engine, run_all: Run, record: Run
) -> None:
    long = video(steps=40, seed=9)
    [[expected], _] = run_all(engine, long)
    with record(engine) as log:
        handle = engine.submit(**long)
        answers: list[Any] = []
        waiting: list[Any] = []
        # Eight answers are asked for at any time, until the video is there.
        while not handle.done:
            waiting = [answer for answer in waiting if not answer.done]
            while len(waiting) < 8:
                waiting.append(
                    engine.submit(**pocket("tell", "an answer", steps=4, seed=len(answers)))
                )
                answers.append(waiting[-1])
            threading.Event().wait(0.001)
        result = handle.result(60.0)
        for answer in answers:
            answer.result(60.0)
    assert result.latents_digest == expected.latents_digest
    steps = [
        index
        for index, ran in enumerate(log.batches)
        if ran.kind is UnitKind.DIFFUSION_STEP and ran.thread == "engine"
    ]
    between = [after - before - 1 for before, after in itertools.pairwise(steps)]
    sys.stdout.write(
        f"{len(answers)} answers, at most {max(between)} batches of them between two steps\n"
    )
    # Answers ran between the steps, many of them, and never more than a few in a row: so the wait
    # of the video for its next step has a bound.
    assert sum(between) >= len(steps) / 2
    assert len(answers) > 16
    assert max(between) <= 12


def seconds_of(log: Any, kinds: Iterable[UnitKind]) -> dict[UnitKind, float]:
    """Device-seconds of each kind so far."""
    return {
        kind: sum(ran.executed.measured_seconds for ran in log.batches if ran.kind is kind)
        for kind in kinds
    }


@pytest.mark.slow
@pytest.mark.row("SCH-06")
@pytest.mark.parametrize("tokens_share", [0.25, 0.6])
def test_tokens_and_denoise_steps_share_device_seconds_at_the_ratio_that_is_set(
    make_engine: MakeEngine, record: Run, tokens_share: float
) -> None:
    shares = {UnitKind.AR_TOKEN: tokens_share, UnitKind.DIFFUSION_STEP: 1.0 - tokens_share}
    engine = make_engine(
        ("pocket", "moving-digits"), policy=SchedulingPolicy(kind_shares=shares, window_steps_max=1)
    )
    with record(engine) as log:
        videos = [engine.submit(**video(steps=400, seed=seed)) for seed in (1, 2)]
        _wait(lambda: any(ran.kind is UnitKind.DIFFUSION_STEP for ran in log.batches))
        # So many that both kinds wait for their turn to the end, without help of this thread.
        answers = [
            engine.submit(**pocket("tell", "go", steps=60, seed=seed)) for seed in range(240)
        ]
        _wait(lambda: any(ran.kind is UnitKind.AR_TOKEN for ran in log.batches))
        before = seconds_of(log, shares)
        while sum(seconds_of(log, shares).values()) - sum(before.values()) < 3.0:
            assert not all(answer.done for answer in answers)
            threading.Event().wait(0.05)
        after = seconds_of(log, shares)
        seconds = {kind: after[kind] - before[kind] for kind in shares}
        for handle in (*videos, *answers):
            handle.cancel()
    engine.close()
    found = seconds[UnitKind.AR_TOKEN] / sum(seconds.values())
    sys.stdout.write(f"tokens had {found:.3f} of {sum(seconds.values()):.2f} s, {shares}\n")
    # On a busy machine single steps take several times what they take alone.
    assert found == pytest.approx(tokens_share, abs=0.15)
