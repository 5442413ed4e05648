"""Execution replay against the original run, and what tracing a request in detail costs it.

In processor time of one thread: the original's units are done again, alone.
"""

import statistics
import sys
import time
from pathlib import Path

from measurement import Measurement

from fastvideo.engine.engine import Engine
from fastvideo.recompute.execution import replay
from fastvideo.recompute.host import Host
from fastvideo.replay.types import LoggedRun, ReplayKind, ReplayRequest
from fastvideo.requests.types import OutputSpec, TraceLevel

IDS = ("replay",)
STEPS = 20
ROUNDS = 5
PROMPT = "a red three moving left"

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def measure() -> list[Measurement]:
    """Replays of plain runs and traced ones, each beside its original."""
    with Engine(threads=1) as engine:
        plain, traced = _measured(engine, detail=False), _measured(engine, detail=True)
    return [
        Measurement(
            id="replay",
            what=f"execution replay of {STEPS} steps, after loading",
            value=plain["replay"],
            unit="s",
            goal="reported",
            peer=plain["original"],
            peer_name="the original run",
            details={"load_s": plain["load"], "wall_s": plain["wall"]},
        ),
        Measurement(
            id="replay",
            what=f"a request of {STEPS} steps, traced in detail",
            value=traced["original"],
            unit="s",
            goal="reported",
            peer=plain["original"],
            peer_name="the same, not traced",
        ),
        Measurement(
            id="replay",
            what=f"execution replay of {STEPS} steps, layer by layer",
            value=traced["replay"],
            unit="s",
            goal="reported",
            peer=traced["original"],
            peer_name="the original run",
        ),
    ]


def _measured(engine: Engine, *, detail: bool) -> dict[str, float]:
    from tests.families.recorded import record

    outputs = OutputSpec(video=True, trace=TraceLevel.DETAIL if detail else None)
    samples: list[tuple[float, float, float, float]] = []
    for round_index in range(ROUNDS + 1):
        # A prompt of its own: a replay finds nothing in a cache.
        asked = {
            "prompt": f"{PROMPT} {round_index}",
            "seed": round_index,
            "steps": STEPS,
            "outputs": outputs,
        }
        began_s = time.process_time()
        [run], sources = record(engine, asked)
        original_s = time.process_time() - began_s
        began_s = time.process_time()
        host = Host(run, None, sources)
        load_s = time.process_time() - began_s
        took_s, wall_s = _replayed(run, host, detail=detail)
        if round_index:
            samples.append((original_s, load_s, took_s, wall_s))
    names = ("original", "load", "replay", "wall")
    return {
        name: statistics.median(kept)
        for name, kept in zip(names, zip(*samples, strict=True), strict=True)
    }


def _replayed(run: LoggedRun, host: Host, *, detail: bool) -> tuple[float, float]:
    request = ReplayRequest(kind=ReplayKind.EXECUTION, detail=detail)
    began_s = time.process_time()
    report = replay(request, run, host, lambda _: None)
    took_s = time.process_time() - began_s
    assert report.equal, report.headline
    return took_s, report.seconds
