"""Tracing a request in detail: every layer in the log, no bit changed, nobody else slowed down."""

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fastvideo.engine.stepping as stepping
from fastvideo import wire
from fastvideo.engine.engine import Engine
from fastvideo.engine.layers import decode_layers
from fastvideo.engine.results import Generation
from fastvideo.models.recording import Recorded
from fastvideo.models.wan.loops.denoise import DenoiseKernel
from fastvideo.requests.types import OutputSpec, TraceLevel
from fastvideo.scheduling.traces import ComponentsTraced, ComponentTrace
from tests.families.recorded import EngineSources
from tests.families.served import Log, logged, run
from tests.spans import recorded_spans

PROMPT = "a red three moving left"
WAIT_S_MAX = 120.0
STEPS = 6
TRIES_MAX = 20
DETAIL = OutputSpec(video=True, trace=TraceLevel.DETAIL)
# What the summary may take of a step: its state's digest, and the event that tells of it.
SUMMARY_SHARE_MAX = 0.05
SUMMARY_EVENT_BYTES_MAX = 1_000


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(threads=1) as engine:
        yield engine


def asked(**options: Any) -> dict[str, Any]:
    return {"prompt": PROMPT, "seed": 7, "steps": STEPS} | options


def sharing_a_step(
    engine: Engine, *asked: dict[str, Any], before: Callable[[], None] = lambda: None
) -> tuple[list[Generation], Log]:
    """Run requests at once, again until all of them shared a step: the first may be done before
    the last is encoded, whose turn comes when the first has had as much of the device."""
    for _ in range(TRIES_MAX):
        before()
        made, log = run(engine, *asked)
        if any(ran.size == len(asked) and ran.kind == "diffusion_step" for ran in log.batches):
            return made, log
    raise AssertionError("they never shared a step")


def layers_of(engine: Engine, note: ComponentsTraced) -> tuple[ComponentTrace, ...]:
    return decode_layers(EngineSources(engine).blob(note.layers_digest))


def traces_of(log: Log, request_id: str) -> list[ComponentsTraced]:
    return [
        note
        for ran in log.batches
        for note in ran.executed.notes
        if isinstance(note, ComponentsTraced) and note.request_id == request_id
    ]


def bits(layers: tuple[ComponentTrace, ...]) -> list[tuple[str, str, int, str]]:
    return [(one.component, one.layer, one.calls, one.digest) for one in layers]


@pytest.mark.row("OBS-04")
def test_a_traced_request_beside_a_plain_one_changes_no_bit_of_either(engine: Engine) -> None:
    plain, detailed = asked(seed=1), asked(seed=2, outputs=DETAIL)
    [plain_alone], plain_log = run(engine, plain)
    [detailed_alone], alone_log = run(engine, detailed)
    [plain_beside, detailed_beside], log = sharing_a_step(engine, plain, detailed)
    [untraced], untraced_log = run(engine, asked(seed=2))

    assert plain_beside.latents_digest == plain_alone.latents_digest
    assert detailed_beside.latents_digest == detailed_alone.latents_digest
    assert detailed_alone.latents_digest == untraced.latents_digest
    expected = [digest for node, digest in plain_log.digests(plain_alone.request_id)]
    found = [digest for node, digest in log.digests(plain_beside.request_id)]
    # The last state names the request's files.
    assert found[:-1] == expected[:-1]
    assert traces_of(log, plain_beside.request_id) == []
    assert traces_of(untraced_log, untraced.request_id) == []

    alone = traces_of(alone_log, detailed_alone.request_id)
    beside = traces_of(log, detailed_beside.request_id)
    steps = [note for note in beside if note.node_id == "denoise"]
    assert [note.step_range.stop for note in steps] == list(range(1, STEPS + 1))
    for one, other in zip(alone, beside, strict=True):
        assert bits(layers_of(engine, one)) == bits(layers_of(engine, other))


def test_components_and_layers_are_named_in_order_of_execution(engine: Engine) -> None:
    [made], log = run(engine, asked(outputs=DETAIL, prompt="a prompt that no cache has"))
    notes = traces_of(log, made.request_id)
    by_node = {note.node_id: note for note in notes}
    named = {node: [one.component for one in note.components] for node, note in by_node.items()}
    assert named == {
        "encode": ["tokenizer", "text_encoder"],
        "denoise": ["transformer", "guidance", "sampler"],
        "decode": ["vae"],
    }
    for note in notes:
        layers = layers_of(engine, note)
        assert note.layers == len(layers)
        assert all(one.calls > 0 and len(one.digest) == 64 for one in layers)
    names = [one.layer for one in layers_of(engine, by_node["denoise"])]
    blocks = [names.index(f"blocks.{index}.attn1.to_q") for index in range(2)]
    assert blocks == sorted(blocks)
    # The transformer itself comes after its layers, then what the loop makes of its output.
    last = [(one.component, one.layer) for one in layers_of(engine, by_node["denoise"])[-3:]]
    assert last == [("transformer", ""), ("guidance", ""), ("sampler", "")]


def test_plain_requests_use_their_recordings_while_others_are_traced(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(engine, asked(seed=1))
    seen: list[tuple[int, bool]] = []
    forward = Recorded.__call__

    def watched(recorded: Recorded, *tensors: Any) -> Any:
        seen.append((len(tensors[0]), recorded._watch.is_watched()))
        return forward(recorded, *tensors)

    monkeypatch.setattr(Recorded, "__call__", watched)
    sharing_a_step(engine, asked(seed=1), asked(seed=2, outputs=DETAIL), before=seen.clear)
    # One forward of each a step: two branches, and only the traced one is watched.
    assert seen.count((2, True)) == STEPS
    assert seen.count((2, False)) == STEPS


@pytest.mark.row("OBS-04")
def test_the_summary_of_a_step_is_one_span_one_digest_and_one_event_however_long_a_request(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, not timed: what there is to do for a step grows with nothing but its state."""
    largest = []
    for steps in (5, 20):
        states: list[int] = []
        with monkeypatch.context() as patch, recorded_spans() as spans, logged(engine) as log:
            patch.setattr(DenoiseKernel, "state_bytes", _sized(DenoiseKernel.state_bytes, states))
            engine.submit(**asked(steps=steps, seed=3)).result(WAIT_S_MAX)
        batches = [span for span in spans.get_finished_spans() if span.name == "engine.batch"]
        assert len(batches) == len(log.batches)
        ran = [batch.executed for batch in log.batches if batch.kind == "diffusion_step"]
        results = sum(len(executed.results) for executed in ran)
        assert results == steps
        assert len(states) == steps
        # Windows differ from run to run: each of their steps has its bytes.
        for executed in ran:
            assert len(wire.encode(executed)) <= SUMMARY_EVENT_BYTES_MAX * len(executed.results)
        largest.append(max(states))
    # Numbers of later steps have a digit more.
    assert largest[1] == pytest.approx(largest[0], rel=0.01)


@pytest.mark.row("OBS-04")
def test_the_summary_costs_little_of_a_step(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(engine, asked(steps=20, seed=1))
    shares = []
    for seed in range(3):
        spent = {"digest": 0.0, "step": 0.0}
        with monkeypatch.context() as patch:
            patch.setattr(DenoiseKernel, "state_bytes", _timed(DenoiseKernel.state_bytes, spent))
            patch.setattr(stepping, "hashlib", _TimedHashes(spent))
            executor = engine._executor
            patch.setattr(executor, "execute", _of_steps(executor.execute, spent))
            with logged(engine) as log:
                engine.submit(**asked(steps=20, seed=seed)).result(WAIT_S_MAX)
        steps = [ran.executed for ran in log.batches if ran.kind == "diffusion_step"]
        began_s = time.thread_time()
        for executed in steps:
            wire.encode(executed)
        encoding = time.thread_time() - began_s
        shares.append((spent["digest"] + encoding) / spent["step"])
    print(f"summary tracing, share of a step: {[f'{share:.2%}' for share in shares]}")  # noqa: T201
    assert min(shares) < SUMMARY_SHARE_MAX


def _sized(call: Callable[..., bytes], sizes: list[int]) -> Callable[..., bytes]:
    def sized(*arguments: Any) -> bytes:
        given = call(*arguments)
        sizes.append(len(given))
        return given

    return sized


def _timed(call: Callable[..., Any], spent: dict[str, float]) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:
        began_s = time.thread_time()
        try:
            return call(*arguments, **named)
        finally:
            spent["digest"] += time.thread_time() - began_s

    return timed


class _TimedHashes:
    """`hashlib` as the stepper uses it."""

    def __init__(self, spent: dict[str, float]) -> None:
        self.sha256 = _timed(hashlib.sha256, spent)


def _of_steps(execute: Callable[..., Any], spent: dict[str, float]) -> Callable[..., Any]:
    def timed(command: Any) -> Any:
        began_s = time.thread_time()
        executed = execute(command)
        if command.kind == "diffusion_step":
            spent["step"] += time.thread_time() - began_s
        return executed

    return timed
