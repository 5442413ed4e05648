"""Processes of a former run that are still there, because its supervisor was killed.

The kernel has told them to end already (child.py); this waits for them, and ends those that do not.
A process is named by its pid and its start time, so that nobody else's process is ever touched.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterable

from fastvideo.local.folder import DataFolder
from fastvideo.local.process import start_ticks
from fastvideo.local.state import read_state

_PATIENCE_S = 3.0
_POLL_S = 0.02


async def end_leftovers(folder: DataFolder) -> None:
    """Wait for the processes that `stack.json` names, kill those that stay. Holds the lock."""
    state = read_state(folder.state)
    if state is None:
        return
    processes = {
        part.pid: part.start_ticks
        for part in state.parts
        if part.pid is not None and part.start_ticks is not None
    }
    if alive := await _wait_gone(processes.items()):
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await _wait_gone((pid, processes[pid]) for pid in alive)


async def _wait_gone(processes: Iterable[tuple[int, int]]) -> list[int]:
    """Wait until the processes have ended; gives the pids of those that have not in time."""
    deadline = time.monotonic() + _PATIENCE_S
    left = dict(processes)
    while True:
        left = {pid: ticks for pid, ticks in left.items() if start_ticks(pid) == ticks}
        if not left or time.monotonic() > deadline:
            return list(left)
        await asyncio.sleep(_POLL_S)
