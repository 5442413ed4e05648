"""The process of a replay is gone before its place is free, however its reader leaves."""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastvideo.api.replay.v1 import replay_pb2
from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.errors import DeadlineExceeded, Unavailable
from fastvideo.replay.process import ReplayLimits, Replays
from fastvideo_worker import service
from fastvideo_worker.service import WorkerService

ASKED = worker_pb2.ReplayRequest()
SECONDS_MAX = 600.0


def replays_that_stay() -> Replays:
    """Each says its process id, and then nothing."""
    program = (
        "import os, sys, time; from fastvideo.replay.framing import frame; "
        "from fastvideo.api.replay.v1 import replay_pb2 as r; "
        "told = r.ReplayResponse(progress=r.ReplayProgress(message=str(os.getpid()))); "
        "sys.stdout.buffer.write(frame(told.SerializeToString())); sys.stdout.flush(); "
        "time.sleep(120)"
    )
    return Replays([sys.executable, "-c", program], ReplayLimits(seconds=SECONDS_MAX))


def runs(told: replay_pb2.ReplayResponse) -> bool:
    return Path(f"/proc/{told.progress.message}").exists()


async def test_the_place_is_free_when_the_process_is_gone() -> None:
    replays = replays_that_stay()
    answers = replays.run(ASKED)
    told = await anext(answers)
    assert runs(told)
    await answers.aclose()
    assert not runs(told)
    assert not replays.is_busy


async def test_a_deadline_does_not_cancel_whoever_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = replays_that_stay().run(ASKED)
    told = await anext(answers)
    # It works on what it was told while the time runs out.
    loop = asyncio.get_running_loop()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "time", lambda: time.monotonic() + SECONDS_MAX)
        with pytest.raises(DeadlineExceeded, match="within 600 s"):
            await anext(answers)
    assert not runs(told)


async def test_closing_ends_the_one_that_runs_after_another_was_left() -> None:
    replays = replays_that_stay()
    left = replays.run(ASKED)
    await anext(left)
    await left.aclose()
    answers = replays.run(ASKED)
    told = await anext(answers)
    await replays.close()
    assert not runs(told)
    with pytest.raises(Unavailable):
        await anext(answers)


async def test_the_service_closes_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "check_request", lambda *_: None)
    ended = []

    async def run(_: Any) -> AsyncGenerator[replay_pb2.ReplayResponse, None]:
        try:
            yield replay_pb2.ReplayResponse()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    status = SimpleNamespace(residents=SimpleNamespace(all=list))
    served: Any = SimpleNamespace(_status=status, _replays=SimpleNamespace(run=run))
    answers = WorkerService.Replay(served, ASKED, None)
    await anext(answers)
    await answers.aclose()
    assert ended == [True]
