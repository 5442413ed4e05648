"""Runs a plan: all parts concurrently as their needs allow, restarts, an ordered stop."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from fastvideo.local.folder import DataFolder
from fastvideo.local.logs import cap_log
from fastvideo.local.part import Pace, Part
from fastvideo.local.plan import StackPlan
from fastvideo.local.state import StackState, write_state

_LOG_CHECK_S = 5.0


class Supervisor:
    """Keeps the parts of one plan running; a context whose end stops them all.

    Writes `stack.json` and calls `on_change` after every change, many changes of one turn of the
    event loop at once. Use it from the main thread (see `Process.start`).
    """

    def __init__(
        self,
        plan: StackPlan,
        folder: DataFolder,
        on_change: Callable[[StackState], None] = lambda state: None,
        pace: Pace | None = None,
        start_s: float | None = None,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._on_change = on_change
        self._started_at = time.time()
        self._stopping = False
        self._publish_due = False
        begin_s = time.monotonic() if start_s is None else start_s
        self._parts = {
            spec.name: Part(spec, folder, self._changed, begin_s, pace or Pace())
            for spec in plan.parts
        }
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def state(self) -> StackState:
        """The stack as it is now."""
        return StackState(
            pid=os.getpid(),
            data=str(self._folder.root),
            started_at=self._started_at,
            parts=tuple(part.state for part in self._parts.values()),
            addresses=dict(self._plan.addresses),
            stopping=self._stopping,
        )

    async def start(self) -> None:
        """Start everything and wait until all is ready. Raises PartFailed."""
        self._publish()
        for name, part in self._parts.items():
            needs = [self._parts[need] for need in part.spec.needs]
            self._tasks[name] = asyncio.create_task(part.run(needs), name=name)
        all_ready = asyncio.create_task(self._all_ready())
        waiting: set[asyncio.Task[None]] = {all_ready, *self._tasks.values()}
        try:
            while not all_ready.done():
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            all_ready.cancel()
        self._publish()

    async def run(self, stop: asyncio.Event) -> None:
        """Keep everything running and the logs bounded until `stop` is set."""
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _LOG_CHECK_S)
            for log in self._folder.logs.glob("*.log"):
                cap_log(log)
            for task in self._tasks.values():
                if task.done():
                    # Only steps that run once end; an error here is a defect, better loud.
                    task.result()

    async def stop(self) -> None:
        """End all parts, group after group in reverse order."""
        self._stopping = True
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for group in self._plan.stop_order():
            await asyncio.gather(*(self._parts[name].stop() for name in group))
        self._publish()

    def kill(self) -> None:
        """End all processes at once; `stop` is still to be awaited."""
        for part in self._parts.values():
            part.kill()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _all_ready(self) -> None:
        for part in self._parts.values():
            await part.ready.wait()

    def _changed(self) -> None:
        if not self._publish_due:
            self._publish_due = True
            asyncio.get_running_loop().call_soon(self._publish)

    def _publish(self) -> None:
        self._publish_due = False
        state = self.state
        write_state(self._folder.state, state)
        self._on_change(state)
