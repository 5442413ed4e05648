"""What a step costs beside its forward, and what sharing forwards saves; in processor time."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import fastvideo
from fastvideo.engine.engine import Engine
from fastvideo.engine.executor import Executor
from fastvideo.models.wan.loops.denoise import DenoiseKernel
from fastvideo.scheduling.core import SchedulerCore
from tests.families.served import standing_still

PROMPT = "a red three moving left"
WAIT_S_MAX = 120.0
STEPS = 20
# Deciding, claiming, hashing and planning, as a share of the forward of a small model: both in
# processor time, so that a slow or busy machine makes both longer.
OVERHEAD_SHARE_MAX = 0.4
AT_ONCE = 8
GAIN_MIN = 1.5
ROUNDS = 4


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    # One thread, so that its processor time is all that a forward takes.
    with fastvideo.Engine(threads=1) as engine:
        yield engine


def _timed(call: Callable[..., Any], spent: Counter[str], name: str) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:
        begun = time.thread_time()
        try:
            return call(*arguments, **named)
        finally:
            spent[name] += time.thread_time() - begun  # type: ignore[assignment]
            spent[f"{name} calls"] += 1

    return timed


@pytest.mark.row("SCH-23")
def test_a_step_costs_little_beside_its_forward(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(2):
        engine.generate(PROMPT, steps=STEPS, seed=seed, timeout_s=WAIT_S_MAX)
    found, shares = [], []
    for seed in range(3):
        spent: Counter[str] = Counter()
        with monkeypatch.context() as patch:
            for owner, method, name in (
                (DenoiseKernel, "run_step", "forward"),
                (SchedulerCore, "decide", "decide"),
            ):
                patch.setattr(owner, method, _timed(getattr(owner, method), spent, name))
            patch.setattr(Executor, "execute", _of_kind(Executor.execute, spent))
            engine.generate(PROMPT, steps=STEPS, seed=seed, timeout_s=WAIT_S_MAX)
        assert spent["forward calls"] == STEPS
        beside = spent["denoise"] - spent["forward"]
        found.append(beside / STEPS + spent["decide"] / spent["decide calls"])
        shares.append(found[-1] / (spent["forward"] / STEPS))
    print(f"overhead of a step: {[f'{s * 1e3:.2f} ms' for s in found]}, {shares} of its forward")  # noqa: T201
    assert min(shares) < OVERHEAD_SHARE_MAX


def _of_kind(execute: Callable[..., Any], spent: Counter[str]) -> Callable[..., Any]:
    """Count the time of denoising batches apart."""

    def timed(executor: Executor, command: Any, *more: Any, **named: Any) -> Any:
        begun = time.thread_time()
        executed = execute(executor, command, *more, **named)
        if command.kind == "diffusion_step":
            spent["denoise"] += time.thread_time() - begun  # type: ignore[assignment]
        return executed

    return timed


@pytest.mark.row("SCH-11")
def test_requests_that_share_forwards_take_less_of_the_device(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where a forward is small its fixed part counts: a single frame, one branch.
    asked: dict[str, Any] = {
        "steps": STEPS,
        "size": (32, 32),
        "num_frames": 1,
        "guidance_scale": 1.0,
    }
    spent: Counter[str] = Counter()
    monkeypatch.setattr(Executor, "execute", _of_kind(Executor.execute, spent))

    def seconds(seeds: Iterable[int]) -> float:
        """Processor time of the denoising of requests at once."""
        before = spent["denoise"]
        with standing_still(engine):
            handles = [engine.submit(PROMPT, seed=seed, **asked) for seed in seeds]
        for handle in handles:
            handle.result(WAIT_S_MAX)
        return spent["denoise"] - before

    serial, shared = [], []
    for _ in range(ROUNDS):
        serial.append(sum(seconds([seed]) for seed in range(AT_ONCE)))
        shared.append(seconds(range(AT_ONCE)))
    print(f"{AT_ONCE} requests: {serial} s one by one, {shared} s at once")  # noqa: T201
    assert min(serial) > GAIN_MIN * min(shared)
