"""Every kind of unit runs on the whole path: plan, admission, batch, execution, result."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from fastvideo.cache.redis_tier import RedisTier
from fastvideo.engine.engine import Engine
from fastvideo.model.caching import CacheClass, CacheOutcome
from fastvideo.scheduling.work import UnitKind
from tests.families.pocket.loops.tell import BLOCK_TOKENS
from tests.families.pocket.program import WINDOW_STEPS
from tests.plugins.redis import redis_address
from tests.plugins.servers import ServerProcess
from tests.spans import recorded_spans

Run = Callable[..., Any]
MakeEngine = Callable[..., Engine]

LONG = "the quick brown fox jumps"


def pocket(program: str, prompt: str = LONG, **options: Any) -> dict[str, Any]:
    return {"model": "pocket", "program": program, "prompt": prompt, "seed": 7} | options


def painting(program: str, prompt: str = "a red fox", **options: Any) -> dict[str, Any]:
    return pocket(program, prompt, **options)


@pytest.mark.row("WUK-01")
def test_tokens_show_in_the_trace_one_unit_a_decode_batch(engine: Engine, run_all: Run) -> None:
    asked = [pocket("tell", LONG[: 8 + 3 * i], steps=24, seed=i) for i in range(4)]
    with recorded_spans() as spans:
        results, log = run_all(engine, *asked)
    batches = [ran for ran in log.batches if ran.kind is UnitKind.AR_TOKEN]
    shown: list[Any] = [
        span.attributes
        for span in spans.get_finished_spans()
        if span.name == "engine.batch" and span.attributes
    ]
    told = [at["fastvideo.batch.size"] for at in shown if at["fastvideo.batch.kind"] == "ar_token"]
    # A span a decode batch with its size, a unit a request in it, a forward a step.
    assert sorted(told) == sorted(ran.size for ran in batches)
    assert sum(len(ran.executed.results) for ran in batches) == 4 * 24
    for ran in batches:
        assert ran.executed.forwards == -(-len(ran.executed.results) // ran.size)
    assert max(ran.size for ran in batches) >= 2
    assert len({log.named(result.request_id)["tell.tokens"] for result in results}) == 4


@pytest.mark.row("WUK-02")
def test_a_prompt_is_read_in_chunks_and_holds_more_blocks_as_it_grows(
    engine: Engine, run_all: Run
) -> None:
    prompt = "x" * 41
    [[result], log] = run_all(engine, pocket("tell", prompt, steps=10))
    kinds = log.kinds(result.request_id)
    # 40 bytes before the last, 8 a chunk; the last is read by the first decode.
    assert kinds[:5] == [UnitKind.AR_PREFILL] * 5
    assert set(kinds[5:]) == {UnitKind.AR_TOKEN}
    # 16 tokens a block: 8, 16, 24, 32, 40 read, then 41 to 50. A batch reserves what its units
    # need, also when it goes on for a window.
    read = [8, 16, 24, 32, 40, *range(41, 51)]
    needed = iter([-(-tokens // BLOCK_TOKENS) for tokens in read])
    for ran in log.batches:
        blocks = {next(needed) for _ in ran.executed.results}
        assert blocks == {ran.reserved["cache_blocks"]}
    assert next(needed, None) is None
    assert engine._core.reserved["cache_blocks"] == 0


@pytest.mark.row("WUK-04")
def test_a_window_is_several_steps_in_one_unit_with_the_bits_of_single_steps(
    engine: Engine, run_all: Run
) -> None:
    asked = [painting(program, steps=6, seed=3) for program in ("paint_windows", "paint")]
    [[windows, steps], log] = run_all(engine, *asked)
    ranges = [
        (result.step_range.start, result.step_range.stop)
        for ran in log.batches
        if ran.kind is UnitKind.DIFFUSION_WINDOW
        for result in ran.executed.results
    ]
    assert ranges == [(0, WINDOW_STEPS), (WINDOW_STEPS, 6)]
    assert log.kinds(steps.request_id).count(UnitKind.DIFFUSION_STEP) == 6
    assert (
        log.named(windows.request_id)["denoise.latents"]
        == (log.named(steps.request_id)["denoise.latents"])
    )


@pytest.mark.row("WUK-07")
def test_speech_is_made_in_chunks(engine: Engine, run_all: Run) -> None:
    [results, log] = run_all(
        engine, pocket("recite", steps=10), pocket("recite", steps=10), pocket("tell", steps=12)
    )
    first, second, _ = (result.request_id for result in results)
    # 10 tokens are 40 frames, 16 a chunk.
    assert log.kinds(first).count(UnitKind.AUDIO_CHUNK) == 3
    assert log.named(first)["voice.waveform"] == log.named(second)["voice.waveform"]


@pytest.mark.row("WUK-08")
def test_rewards_are_a_unit_for_all_pictures_of_a_request(engine: Engine, run_all: Run) -> None:
    asked = [painting("roll", steps=2, num_frames=3, seed=seed) for seed in (1, 2)]
    [results, log] = run_all(engine, *asked)
    for result in results:
        assert log.kinds(result.request_id).count(UnitKind.REWARD_BATCH) == 1
    rewards = [result.scores["reward"] for result in results]
    assert rewards[0] != rewards[1]
    [[again], _] = run_all(engine, asked[0])
    assert again.scores["reward"] == rewards[0]


@pytest.mark.row("WUK-09")
def test_logprobs_of_recorded_answers_are_recomputed_together_and_equal(
    engine: Engine, run_all: Run
) -> None:
    asked = [pocket("check", LONG[: 5 + i], steps=8, seed=i) for i in range(4)]
    [results, log] = run_all(engine, *asked)
    for result in results:
        assert log.kinds(result.request_id).count(UnitKind.LOGPROB_BATCH) == 1
        # One numerics surface: what was recorded while decoding comes out again, bit for bit.
        assert result.scores["max_abs_difference"] == 0.0
        named = log.named(result.request_id)
        assert named["recompute.recomputed"] == named["tell.logprobs"]


@pytest.mark.row("WUK-11")
def test_features_are_saved_to_the_tier_once_and_loaded_after_that(
    engine: Engine, run_all: Run
) -> None:
    asked = painting("paint", "no other test", steps=1)
    [[first], log] = run_all(engine, asked)
    encoding = [ran for ran in log.batches if ran.executed.results[0].loop.node_id == "encode"]
    assert [ran.kind for ran in encoding] == [
        UnitKind.CACHE_LOAD,
        UnitKind.ENCODER_CHUNK,
        UnitKind.CACHE_SAVE,
    ]
    # Loads and saves run beside compute.
    assert [ran.thread.startswith("engine-io") for ran in encoding] == [True, False, True]
    [lookup] = encoding[0].executed.results[0].cache_lookups
    assert lookup.outcome is CacheOutcome.MISS

    [[second], again] = run_all(engine, asked)
    kinds = again.kinds(second.request_id)
    assert kinds[0] is UnitKind.CACHE_LOAD
    assert UnitKind.ENCODER_CHUNK not in kinds
    assert UnitKind.CACHE_SAVE not in kinds
    [lookup] = again.of(second.request_id)[0].cache_lookups
    assert lookup.outcome is CacheOutcome.HIT
    assert again.named(second.request_id) == log.named(first.request_id)


@pytest.mark.slow
@pytest.mark.row("WUK-11")
def test_workers_share_features_through_redis_and_compute_them_when_it_is_wiped(
    make_engine: MakeEngine, run_all: Run, redis_server: ServerProcess
) -> None:
    asked = painting("paint", steps=2)
    digests, kinds = [], []
    for wiped in (False, False, True):
        if wiped:
            with redis.Redis(port=redis_server.port) as client:
                client.flushall()
        tier = RedisTier(redis_address(redis_server))
        worker = make_engine(tier=tier)
        [[result], log] = run_all(worker, asked)
        digests.append(log.named(result.request_id))
        kinds.append(log.kinds(result.request_id))
        worker.close()
        tier.close()
    assert digests[0] == digests[1] == digests[2]
    encoded = [UnitKind.ENCODER_CHUNK in of_worker for of_worker in kinds]
    assert encoded == [True, False, True]


def test_without_a_tier_features_are_encoded_each_time(
    make_engine: MakeEngine, run_all: Run
) -> None:
    engine = make_engine(tier=None)
    for _ in range(2):
        [[result], log] = run_all(engine, painting("paint", steps=1))
        kinds = log.kinds(result.request_id)
        assert kinds[:2] == [UnitKind.CACHE_LOAD, UnitKind.ENCODER_CHUNK]
        assert UnitKind.CACHE_SAVE not in kinds


@pytest.mark.row("WUK-13")
def test_a_shape_is_captured_in_a_budgeted_unit_before_its_first_replay(
    engine: Engine, run_all: Run
) -> None:
    asked = [painting("paint_captured", steps=3, seed=i, size=(32, 32)) for i in range(3)]
    [results, log] = run_all(engine, *asked)
    captures = [ran for ran in log.batches if ran.kind is UnitKind.GRAPH_CAPTURE]
    # Each holds the worker's one place for a capture while it runs; a replay holds none.
    assert {ran.reserved["capture_shapes"] for ran in captures} == {1}
    replays = [ran for ran in log.batches if ran.kind is UnitKind.DIFFUSION_STEP]
    assert {ran.reserved["capture_shapes"] for ran in replays} == {0}
    assert captures[0].ended_s <= min(ran.began_s for ran in replays)
    for result in results:
        # A loop that begins once its shape was captured plans no capture.
        kinds = [kind for kind in log.kinds(result.request_id) if kind in _CAPTURED]
        assert kinds[-3:] == [UnitKind.DIFFUSION_STEP] * 3
        assert kinds[:-3] in ([], [UnitKind.GRAPH_CAPTURE])
    made = [
        lookup.outcome
        for ran in captures
        for result in ran.executed.results
        for lookup in result.cache_lookups
        if lookup.cache_class is CacheClass.COMPILED_GRAPH
    ]
    # It is captured once; who planned that meanwhile finds it there.
    assert made.count(CacheOutcome.MISS) == 1
    assert engine._core.reserved["capture_shapes"] == 0

    [[later], again] = run_all(engine, asked[0])
    assert UnitKind.GRAPH_CAPTURE not in again.kinds(later.request_id)
    assert again.named(later.request_id) == log.named(results[0].request_id)


_CAPTURED = (UnitKind.GRAPH_CAPTURE, UnitKind.DIFFUSION_STEP)


@pytest.mark.row("WUK-14")
def test_a_causal_rollout_runs_in_chunk_steps_that_depend_on_the_chunks_before(
    engine: Engine, run_all: Run
) -> None:
    asked = [painting("roll", steps=2, num_frames=frames, seed=5) for frames in (1, 4)]
    [[one, four], log] = run_all(engine, *asked)
    assert log.kinds(one.request_id).count(UnitKind.CHUNK_STEP) == 2
    assert log.kinds(four.request_id).count(UnitKind.CHUNK_STEP) == 4 * 2
    ranges = [
        result.step_range.start
        for result in log.of(four.request_id)
        if result.loop.node_id == "rollout"
    ]
    assert ranges == list(range(8))
