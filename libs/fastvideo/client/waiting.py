"""How far a wait is, shown while it lasts: in place in a notebook and on a terminal, else lines."""

import sys
from typing import Any, Final, Protocol, TextIO

from fastvideo.client import cards
from fastvideo.client.notebook import display_html, in_notebook
from fastvideo.events.types import Event
from fastvideo.requests.events import (
    RequestAccepted,
    RequestCancelled,
    RequestCancelRequested,
    RequestCompleted,
    RequestFailed,
    RequestLogged,
    RequestProgressed,
    RequestQueued,
    RequestStarted,
)

# Something is shown when it is new, or this much further; parts of the whole.
SHOW_EVERY: Final = 0.02
LINE_EVERY: Final = 0.25


def describe(event: Event) -> str:
    """What an event means for somebody who waits, in a few words; empty when it means nothing."""
    payload = event.payload
    match payload:
        case RequestAccepted():
            return f"{payload.spec.request_id} accepted"
        case RequestQueued():
            place = f"place {payload.position}" if payload.position else "waiting"
            return f"queued, {place}" + (f": {payload.reason}" if payload.reason else "")
        case RequestStarted():
            return "started" if payload.attempt <= 1 else f"started, attempt {payload.attempt}"
        case RequestProgressed() if payload.steps:
            return f"{payload.node_id} {payload.step}/{payload.steps}"
        case RequestProgressed():
            return payload.node_id
        case RequestCancelRequested():
            return "cancelling"
        case RequestLogged():
            return payload.message
        case _:
            return ""


_ENDS: Final = {
    RequestCompleted: "completed",
    RequestFailed: "failed",
    RequestCancelled: "cancelled",
}


class ShowsWaiting(Protocol):
    """Takes up a request's events as they come."""

    def __call__(self, event: Event) -> None: ...


def shows_waiting(progress: bool | None) -> ShowsWaiting:
    """The display that suits where this runs; None shows in notebooks alone."""
    notebook = in_notebook()
    if progress is False or (progress is None and not notebook):
        return _nothing
    if notebook:
        return NotebookProgress()
    return TerminalProgress(sys.stderr)


def _nothing(event: Event) -> None:
    return


class _Progress:
    """What is known so far."""

    def __init__(self) -> None:
        self.text = "submitted"
        self.fraction = 0.0

    def take(self, event: Event) -> bool:
        """Take up an event; whether it ends the wait."""
        if isinstance(event.payload, RequestProgressed):
            self.fraction = event.payload.fraction
        end = _ENDS.get(type(event.payload), "")
        if isinstance(event.payload, RequestCompleted):
            self.fraction = 1.0
        self.text = end or describe(event) or self.text
        return bool(end)


class NotebookProgress:
    """A bar in the cell's output."""

    def __init__(self) -> None:
        self._known = _Progress()
        self._shown = (-1.0, "")
        self._handle: Any = None

    def __call__(self, event: Event) -> None:
        ended = self._known.take(event)
        fraction, text = self._known.fraction, self._known.text
        further = fraction >= self._shown[0] + SHOW_EVERY
        renamed = text.split(" ")[0] != self._shown[1].split(" ")[0]
        if not (ended or further or renamed):
            return
        self._shown = (fraction, text)
        html = cards.progress_html(text, fraction)
        self._handle = display_html(html, f"{fraction:4.0%} {text}", self._handle)


class TerminalProgress:
    """A line that is written over on a terminal, and some lines elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._in_place = out.isatty()
        self._known = _Progress()
        self._told = -1.0

    def __call__(self, event: Event) -> None:
        ended = self._known.take(event)
        fraction = self._known.fraction
        line = f"{fraction:4.0%} {self._known.text}"
        if self._in_place:
            self._out.write(f"\r\x1b[2K{line}" + ("\n" if ended else ""))
        elif ended or fraction >= self._told + LINE_EVERY:
            self._told = fraction
            self._out.write(f"{line}\n")
        self._out.flush()
