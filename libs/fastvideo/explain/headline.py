"""All of it in one sentence, for somebody who was woken up by it."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from fastvideo.explain.history import History
from fastvideo.explain.totals import DEVICE, IO, Timeline
from fastvideo.explain.types import ExplainedTotals, WaitCause

_FOR: Final[Mapping[str, str]] = {
    WaitCause.PLACE: "for a place",
    WaitCause.RESOURCE: "for a resource",
    WaitCause.BATCH: "behind other batches",
    WaitCause.PREEMPTION: "preempted",
    WaitCause.LOSS: "after a loss",
    WaitCause.PREPARATION: "while loops were made",
    WaitCause.DELIVERY: "for messages",
}
# What is told however short it was is nothing; below this part of the whole it is not told.
PART_MIN: Final = 0.005


def headline(history: History, laid_out: Timeline, sums: ExplainedTotals) -> str:
    """Such as "completed after 3.21 s: waited 1.20 s (0.80 s for a place; ...), ran 2.01 s ..."."""
    parts = []
    waited = sum(sums.waited_by_cause.values())
    if waited > PART_MIN * sums.total_seconds:
        causes = _causes(history, laid_out, sums)
        parts.append(f"waited {span(waited)} ({'; '.join(causes)})")
    if sums.device_busy_seconds > 0:
        parts.append(f"ran {span(sums.device_busy_seconds)} on the device{_shared(history)}")
    if sums.io_seconds > PART_MIN * sums.total_seconds:
        parts.append(f"wrote for {span(sums.io_seconds)}")
    began = _status(history, laid_out, span(sums.total_seconds))
    told = f"{began}: {', '.join(parts)}" if parts else began
    return told + _attempts(history)


def span(seconds: float) -> str:
    """A length of time, with as many digits as mean something."""
    if seconds >= 100:
        return f"{seconds:.0f} s"
    if seconds >= 10:
        return f"{seconds:.1f} s"
    if seconds >= 0.1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"


def _status(history: History, laid_out: Timeline, total: str) -> str:
    """How it ended, or what it does now, and since when."""
    if history.course.ended_at is not None:
        return f"{re.split('[:,]', history.course.end)[0]} after {total}"
    now = laid_out.now()
    if now.kind in (DEVICE, IO):
        return f"runs, {total} after it was accepted"
    reason = f" ({now.wait.reason})" if now.wait is not None and now.wait.reason else ""
    return f"waits {_FOR[now.kind]}{reason}, {total} after it was accepted"


def _causes(history: History, laid_out: Timeline, sums: ExplainedTotals) -> list[str]:
    """The causes, the longest first."""
    causes = []
    for cause, seconds in sorted(sums.waited_by_cause.items(), key=lambda item: -item[1]):
        if seconds <= PART_MIN * sums.total_seconds:
            continue
        causes.append(f"{span(seconds)} {_FOR[cause]}{_more(cause, history, laid_out)}")
    return causes


def _more(cause: str, history: History, laid_out: Timeline) -> str:
    """What makes a cause concrete: position, resource, or how many others."""
    waits = [one.wait for one in laid_out.intervals if one.kind == cause and one.wait is not None]
    if cause == WaitCause.PLACE:
        position = max((wait.position for wait in waits), default=0)
        return f" (position {position})" if position else ""
    if cause == WaitCause.RESOURCE:
        return f" ({_first(wait.reason for wait in waits)})"
    if cause == WaitCause.BATCH:
        others = {
            id_
            for wait in waits
            for batch in wait.behind
            for id_ in batch.request_ids
            if id_ != history.request_id
        }
        return f" of {_count(len(others), 'request')}" if others else ""
    return ""


def _shared(history: History) -> str:
    done = [unit for unit in history.work.units.values() if unit.done]
    mates = {mate for unit in done for mate in unit.mates}
    told = f" in {_count(len(done), 'unit')}"
    return told + (f", shared with {_count(len(mates), 'other request')}" if mates else "")


def _attempts(history: History) -> str:
    """Why it was not one placement from beginning to end."""
    ends = [attempt.end for attempt in history.course.attempts[:-1]]
    if not ends:
        return ""
    more = f", and {len(ends) - 1} times more" if len(ends) > 1 else ""
    return f"; interrupted: {ends[0]}{more}"


def _first(reasons: Iterable[str]) -> str:
    return next(iter(reasons), "")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
