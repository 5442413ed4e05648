"""Progress on standard error: a bar on a terminal, lines elsewhere."""

import sys
from types import TracebackType
from typing import Protocol, Self

from rich.progress import TextColumn, TimeElapsedColumn

from fastvideo.cli.counting import terminal_bar
from fastvideo.cli.failures import tell
from fastvideo.client.waiting import describe
from fastvideo.events.types import Event
from fastvideo.requests.events import RequestProgressed

# Lines come at most this often, in parts of the whole.
LINE_EVERY = 0.1


class ProgressView(Protocol):
    """Shows what a request's events say; a context that restores the terminal."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def show(self, event: Event) -> None:
        """Take up one event."""
        ...


def progress_view() -> ProgressView:
    """The view that suits standard error."""
    return BarView() if sys.stderr.isatty() else LineView()


class BarView:
    """A bar that moves in place and is gone at the end."""

    def __init__(self) -> None:
        percent = TextColumn("{task.percentage:>3.0f} %")
        self._progress = terminal_bar(percent, TimeElapsedColumn())
        self._task = self._progress.add_task("submitting", total=1.0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, event: Event) -> None:
        """Move the bar."""
        if text := describe(event):
            self._progress.update(self._task, description=text)
        if isinstance(event.payload, RequestProgressed):
            self._progress.update(self._task, completed=event.payload.fraction)


class LineView:
    """A line for each change of phase, and one for each tenth of the way."""

    def __init__(self) -> None:
        self._told = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return

    def show(self, event: Event) -> None:
        """Write a line when there is something new."""
        text = describe(event)
        if isinstance(event.payload, RequestProgressed):
            if event.payload.fraction < self._told + LINE_EVERY and event.payload.fraction < 1:
                return
            self._told = event.payload.fraction
            text = f"{event.payload.fraction:4.0%} {text}"
        if text:
            tell(text)
