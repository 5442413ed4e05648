"""One part of the stack, kept running: start, wait until ready, watch, start again."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastvideo.local.errors import PartFailed
from fastvideo.local.folder import DataFolder
from fastvideo.local.logs import open_log, tail
from fastvideo.local.plan import ProcessSpec
from fastvideo.local.process import Process, describe_exit
from fastvideo.local.state import PartPhase, PartState


@dataclass(frozen=True)
class Pace:
    """How often to look and how long to wait, in seconds."""

    start_check_s: float = 0.03
    watch_check_s: float = 5.0
    recheck_s: float = 1.0
    check_timeout_s: float = 2.0
    restart_first_s: float = 0.1
    restart_max_s: float = 10.0
    # After this long without a crash the pauses start over.
    steady_s: float = 30.0
    # Failed checks in a row before a part counts as unready.
    unready_checks: int = 2
    # Crashes in a row, before it was ever ready, that the first start forgives.
    first_start_crashes: int = 3

    def pause_s(self, crashes: int) -> float:
        """The pause before a new start, after so many crashes in a row: 0.1, 0.2, 0.4 ... 10."""
        return min(self.restart_max_s, self.restart_first_s * 2.0 ** min(crashes - 1, 30))


_TAIL_LINES = 12


class Part:
    """A part and what is known of it; `changed` is called after every change of `state`."""

    def __init__(
        self,
        spec: ProcessSpec,
        folder: DataFolder,
        changed: Callable[[], None],
        stack_start_s: float,
        pace: Pace,
    ) -> None:
        self.spec = spec
        self.state = PartState(name=spec.name, address=spec.address, once=spec.once)
        self.ready = asyncio.Event()
        self._folder = folder
        self._changed = changed
        self._stack_start_s = stack_start_s
        self._pace = pace
        self._process: Process | None = None
        self._log_start = 0

    async def run(self, needs: Sequence["Part"]) -> None:
        """Keep the part running until cancelled; a step that runs once returns when done.

        Raises PartFailed when the first start does not come to an end in time or keeps crashing.
        """
        for need in needs:
            await need.ready.wait()
        crashes = 0
        while True:
            started_s = time.monotonic()
            end = await self._live_once(started_s)
            if self.spec.once and end == describe_exit(0):
                self._mark_ready(PartPhase.DONE)
                return
            steady = time.monotonic() - started_s > self._pace.steady_s
            crashes = 1 if steady else crashes + 1
            self._note_crash(end)
            if self.spec.once or (
                not self.ready.is_set() and crashes >= self._pace.first_start_crashes
            ):
                raise self._failure(self.state.last_exit)
            await asyncio.sleep(self._pace.pause_s(crashes))

    async def stop(self) -> None:
        """End the process, gently and then not; `run` must have been cancelled before."""
        if self._process is not None and not self._process.exited.done():
            self._set(phase=PartPhase.STOPPING)
            await self._process.stop(self.spec.stop_signal, self.spec.stop_grace_s)
        await self.spec.ready.close()
        if self.state.phase is not PartPhase.FAILED:
            self._set(phase=PartPhase.STOPPED, pid=None, reason="")

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.send(signal.SIGKILL)

    async def _live_once(self, started_s: float) -> str:
        """One process from its start to its end; gives the end in words."""
        try:
            process = self._spawn()
        except OSError as error:
            return f"cannot be started: {error}"
        await self._until_ready_or_exit(process, started_s)
        if not process.exited.done():
            await self._watch(process)
        return describe_exit(process.exited.result())

    def _spawn(self) -> Process:
        log = open_log(self._folder.log(self.spec.name))
        with open(log, "ab", buffering=0) as output:
            self._log_start = output.seek(0, os.SEEK_END)
            self._process = Process.start(self.spec, output.fileno())
        self._set(
            phase=PartPhase.STARTING,
            pid=self._process.pid,
            start_ticks=self._process.start_ticks,
            started_at=time.time(),
            spawned_after_s=time.monotonic() - self._stack_start_s,
            reason="",
        )
        return self._process

    async def _until_ready_or_exit(self, process: Process, started_s: float) -> None:
        while not process.exited.done():
            reason = await self._check(process)
            if process.exited.done():
                return
            if reason is None:
                self._mark_ready(PartPhase.READY)
                return
            if not self.ready.is_set() and (
                time.monotonic() - started_s > self.spec.start_timeout_s
            ):
                raise self._failure(f"not ready after {self.spec.start_timeout_s:g} s: {reason}")
            await asyncio.wait({process.exited}, timeout=self._pace.start_check_s)

    async def _watch(self, process: Process) -> None:
        failures = 0
        while not process.exited.done():
            pause_s = self._pace.recheck_s if failures else self._pace.watch_check_s
            await asyncio.wait({process.exited}, timeout=pause_s)
            reason = await self._check(process)
            failures = 0 if reason is None else failures + 1
            if reason is None and self.state.phase is PartPhase.UNREADY:
                self._set(phase=PartPhase.READY, reason="")
            elif reason is not None and failures >= self._pace.unready_checks:
                self._set(phase=PartPhase.UNREADY, reason=reason)

    async def _check(self, process: Process) -> str | None:
        """Ask the probe; an exit of the process or the time limit cuts the question short."""
        if process.exited.done():
            return "exited"
        question = asyncio.create_task(self.spec.ready.check())
        await asyncio.wait(
            (question, process.exited),
            timeout=self._pace.check_timeout_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if question.done():
            return question.result()
        question.cancel()
        return f"no answer within {self._pace.check_timeout_s:g} s"

    def _mark_ready(self, phase: PartPhase) -> None:
        after_s = time.monotonic() - self._stack_start_s
        pid = None if phase is PartPhase.DONE else self.state.pid
        self._set(phase=phase, pid=pid, reason="", ready_after_s=after_s)
        self.ready.set()

    def _note_crash(self, end: str) -> None:
        self._set(
            phase=PartPhase.RESTARTING,
            pid=None,
            start_ticks=None,
            restarts=self.state.restarts + 1,
            last_exit=end,
            last_lines=self._last_lines(),
        )

    def _failure(self, why: str) -> PartFailed:
        self._set(phase=PartPhase.FAILED, reason=why)
        return PartFailed(
            f"{self.spec.name} did not start: {why}",
            subject=self.spec.name,
            attributes={
                "log": str(self._folder.log(self.spec.name)),
                "tail": "\n".join(self._last_lines()),
            },
        )

    def _last_lines(self) -> tuple[str, ...]:
        """What the last process wrote at its end; nothing of those before it."""
        return tail(self._folder.log(self.spec.name), _TAIL_LINES, self._log_start)

    def _set(self, **changes: Any) -> None:
        changed = replace(self.state, **changes)
        if changed != self.state:
            self.state = changed
            self._changed()
