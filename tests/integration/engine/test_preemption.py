"""Requests set aside in process: the urgent one goes first, the other loses no step and no bit."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fastvideo.engine.engine import Engine
from fastvideo.engine.results import RequestHandle
from fastvideo.requests.types import OutputSpec
from fastvideo.scheduling.policy import SchedulingPolicy

WAIT_S_MAX = 120.0
LONG: dict[str, Any] = {"prompt": "a blue seven moving up", "steps": 40, "seed": 3}
SHORT: dict[str, Any] = {"prompt": "a red three moving left", "steps": 3, "seed": 4}
# One place, and a request with more urgency takes it at once.
POLICY = SchedulingPolicy(resident_requests_max=1, residency_seconds_min=0, snapshot_overhead_max=0)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(threads=1, policy=POLICY) as engine:
        yield engine


def _submit(engine: Engine, **options: Any) -> RequestHandle:
    return engine.submit(**options, outputs=OutputSpec(video=True))


@pytest.mark.row("LOOP-15")
def test_a_request_that_is_set_aside_goes_on_where_it_stood_with_equal_bits(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = {
        name: _submit(engine, **options).result(WAIT_S_MAX)
        for name, options in (("long", LONG), ("short", SHORT))
    }
    executor = engine._executor
    execute, snapshot = executor.execute, executor.snapshot
    ran: list[str] = []
    saved: list[Any] = []
    begun, asked = threading.Event(), threading.Event()

    def watched(command: Any) -> Any:
        executed = execute(command)
        ran.extend(result.unit_id for result in executed.results)
        if sum("/denoise/" in unit_id for unit_id in ran) >= 2:
            begun.set()
            asked.wait(WAIT_S_MAX)
        return executed

    monkeypatch.setattr(executor, "execute", watched)

    def kept(command: Any) -> Any:
        saved.append(snapshot(command))
        return saved[-1]

    monkeypatch.setattr(executor, "snapshot", kept)
    long = _submit(engine, **LONG)
    assert begun.wait(WAIT_S_MAX)
    short = _submit(engine, **SHORT, priority=5)
    asked.set()
    first = short.result(WAIT_S_MAX)
    assert not long.done
    second = long.result(WAIT_S_MAX)
    assert first.latents_digest == alone["short"].latents_digest
    assert second.latents_digest == alone["long"].latents_digest
    assert second.artifacts[0].record.digest == alone["long"].artifacts[0].record.digest
    [event] = saved
    assert (event.released, event.error) == (True, None)
    # Each step of each request ran once: nothing was computed again.
    steps = [unit_id.rpartition("/")[2] for unit_id in ran if "/denoise/" in unit_id]
    assert len(steps) == LONG["steps"] + SHORT["steps"]
    assert executor.loops == 0
    assert not executor.values.scopes()
