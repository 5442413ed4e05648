"""How the stack looks on a terminal: progress of a start, a table of its parts."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fastvideo.local.state import PartPhase, PartState, StackState

if TYPE_CHECKING:
    # It needs the extra `local`, which showing the progress of a start does not.
    from fastvideo.local.status import StackStatus

_STYLES = {
    PartPhase.READY: "green",
    PartPhase.DONE: "green",
    PartPhase.STARTING: "yellow",
    PartPhase.RESTARTING: "red",
    PartPhase.UNREADY: "red",
    PartPhase.FAILED: "red",
}
_MIB = 1024 * 1024


class StartProgress:
    """Shows the parts as they come up: a live table on a terminal, else one line a part.

    Call it with every new state; it is a context that ends the display.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begin_s = time.monotonic()
        self._told: set[str] = set()
        self._live = Live(console=console, transient=False, auto_refresh=False)
        self._on_terminal = console.is_terminal

    def __call__(self, state: StackState) -> None:
        if self._on_terminal and not state.stopping:
            self._live.update(self._table(state), refresh=True)
        elif not self._on_terminal:
            self._print_new(state)

    def __enter__(self) -> Self:
        if self._on_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the last picture on the screen and let go of the terminal."""
        if self._on_terminal:
            self._live.stop()
            self._on_terminal = False
            self._told.update("*")

    def _print_new(self, state: StackState) -> None:
        if "*" in self._told:
            return
        for part in state.parts:
            if part.settled and part.name not in self._told:
                self._told.add(part.name)
                self._console.print(
                    f"{part.name:<12} {part.phase.value:<8} {_took(part)}", highlight=False
                )

    def _table(self, state: StackState) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for part in state.parts:
            style = _STYLES.get(part.phase, "dim")
            table.add_row(
                part.name,
                Text(part.phase.value, style=style),
                _took(part),
                Text(part.last_exit or part.reason, style="dim"),
            )
        elapsed_s = time.monotonic() - self._begin_s
        return Group(Text(f"starting the stack in {state.data} · {elapsed_s:.1f} s"), table)


def _took(part: PartState) -> str:
    if part.spawned_after_s is None:
        return ""
    if part.ready_after_s is None:
        return f"started at {part.spawned_after_s:.2f} s"
    took_s = part.ready_after_s - part.spawned_after_s
    return f"{took_s:.2f} s (ready at {part.ready_after_s:.2f} s)"


def print_status(console: Console, status: "StackStatus") -> None:
    """A table of the parts, and below it what went wrong with those that are not ready."""
    if not status.running:
        console.print(f"no stack is running in {status.data}", highlight=False, soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("part", "state", "pid", "restarts", "uptime", "memory", "address"):
        table.add_column(column, no_wrap=True)
    for part in status.parts:
        table.add_row(
            part.name,
            Text(part.state.value, style=_STYLES.get(part.state, "dim")),
            str(part.pid or ""),
            str(part.restarts),
            f"{part.uptime_s:.0f} s" if part.pid else "",
            f"{part.rss_bytes / _MIB:.0f} MiB" if part.pid else "",
            part.address,
        )
    console.print(table)
    for part in status.parts:
        if part.state not in (PartPhase.READY, PartPhase.STOPPING):
            _print_trouble(console.print, part.name, part.last_exit, part.reason, part.last_lines)
    console.print(f"gateway: gRPC {status.gateway}, HTTP {status.gateway_http}", highlight=False)


def _print_trouble(
    show: Callable[[Text], None], name: str, last_exit: str, reason: str, lines: tuple[str, ...]
) -> None:
    why = ", ".join(filter(None, (reason, last_exit)))
    if why:
        show(Text(f"{name}: {why}", style="red"))
    for line in lines:
        show(Text(f"  {line}", style="dim"))
