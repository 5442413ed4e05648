"""One running process: it cannot outlive us, and is watched without polling. Linux only."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from fastvideo.local import child
from fastvideo.local.plan import ProcessSpec


class Process:
    """A process in a session and process group of its own; `exited` gets its exit code.

    A negative exit code is the number of the signal that ended it.
    """

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self._popen = popen
        self._pidfd = os.pidfd_open(popen.pid)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pidfd, self._reap)
        self.pid = popen.pid
        self.start_ticks = start_ticks(popen.pid)
        self.exited: asyncio.Future[int] = self._loop.create_future()

    @classmethod
    def start(cls, spec: ProcessSpec, log: int) -> Self:
        """Start the program of a part, its output appended to the descriptor `log`.

        Call it from the main thread: the kernel ties the child's life to the calling thread.
        """
        wrapper = (
            sys.executable,
            "-I",
            "-S",
            child.__file__,
            str(os.getpid()),
            str(int(spec.orphan_signal)),
            spec.user or "-",
        )
        return cls(
            subprocess.Popen(
                (*wrapper, *spec.argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=spec.cwd,
                env=dict(spec.environment),
                start_new_session=True,
            )
        )

    def send(self, what: signal.Signals) -> None:
        """Signal the process; nothing happens when it has ended."""
        if not self.exited.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, what)

    async def stop(self, how: signal.Signals, grace_s: float) -> int:
        """Ask it to end, kill its group when it does not within the grace; gives the exit code."""
        self.send(how)
        await asyncio.wait({self.exited}, timeout=grace_s)
        if not self.exited.done():
            self._kill_group()
        return await self.exited

    def _reap(self) -> None:
        # Before the leader is reaped its id cannot name another group: end what it left behind.
        self._kill_group()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.exited.set_result(self._popen.wait())

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def start_ticks(pid: int) -> int | None:
    """When the process started, in the kernel's clock ticks; None when there is no such process.

    Together with the pid this names a process for good, also after its pid is used again.
    """
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Field 22; the second field, the name, may hold spaces and parentheses.
    fields = line.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def describe_exit(code: int) -> str:
    """The exit code in words."""
    if code >= 0:
        return f"exited with {code}"
    return f"killed by {signal.Signals(-code).name}"
