"""Processes of a former run that are still there, because its supervisor was killed.

The kernel has told them to end already (child.py); this waits for them, and ends those that do not.
A process is named by its pid and its start time, so that nobody else's process is ever touched.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from fastvideo.local.folder import DataFolder
from fastvideo.local.process import start_ticks
from fastvideo.local.servers import postgres_data
from fastvideo.local.state import read_state

_PATIENCE_S = 3.0
_POLL_S = 0.02


async def end_leftovers(folder: DataFolder) -> None:
    """Wait for what a former run left behind, kill what stays. The caller holds the lock."""
    leftovers = {**_recorded(folder), **_postmaster(postgres_data(folder))}
    stubborn = await _wait_gone(leftovers)
    for pid in stubborn:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await _wait_gone(stubborn)
    # Its pid may be in use again by a process of ours, and Postgres would not dare to start.
    (postgres_data(folder) / "postmaster.pid").unlink(missing_ok=True)


def _recorded(folder: DataFolder) -> dict[int, int]:
    """Processes by the last written state: pid and start time."""
    state = read_state(folder.state)
    return {
        part.pid: part.start_ticks
        for part in (state.parts if state is not None else ())
        if part.pid is not None and part.start_ticks is not None
    }


def _postmaster(data: Path) -> dict[int, int]:
    """The server that runs in the data directory, by Postgres' own record; empty when none does."""
    try:
        pid = int((data / "postmaster.pid").read_text().split()[0])
        # A postmaster works in its data directory; any other process has merely got its pid.
        if Path(f"/proc/{pid}/cwd").resolve(strict=True) != data.resolve():
            return {}
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    ticks = start_ticks(pid)
    return {} if ticks is None else {pid: ticks}


async def _wait_gone(processes: Mapping[int, int]) -> dict[int, int]:
    """Wait until the processes have ended; gives those that have not in time."""
    deadline = time.monotonic() + _PATIENCE_S
    left = dict(processes)
    while True:
        left = {pid: ticks for pid, ticks in left.items() if start_ticks(pid) == ticks}
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(_POLL_S)
