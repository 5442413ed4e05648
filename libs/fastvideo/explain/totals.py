"""Where the time went: every moment from accepted to ended has one cause.

Units of a request overlap, so their seconds do not add up to its own. Here each moment counts
once: for the device when any unit ran on it, else for what ran off it, else for the cause that
was nearest to running.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Final

from fastvideo.explain.history import History
from fastvideo.explain.records import UnitRecord
from fastvideo.explain.types import ExplainedTotals, WaitCause
from fastvideo.explain.waits import Wait, late_reports, loop_waits, pause_waits, unit_waits

DEVICE: Final = "device"
IO: Final = "io"

# Of what goes on at once, the first here has the moment.
_ORDER: Final = (
    DEVICE,
    IO,
    WaitCause.RESOURCE,
    WaitCause.BATCH,
    WaitCause.PREPARATION,
    WaitCause.PREEMPTION,
    WaitCause.LOSS,
    WaitCause.PLACE,
    WaitCause.DELIVERY,
)


@dataclass(frozen=True, slots=True)
class Interval:
    """A span of time of one kind: "device", "io" or a cause."""

    begin: datetime
    end: datetime
    kind: str
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that went on with a request from accepted to its end or to now."""

    begin: datetime
    end: datetime
    intervals: tuple[Interval, ...]
    # What each unit waited for, by its id; and what the request did beside its units.
    unit_waits: Mapping[str, tuple[Wait, ...]]
    other_waits: tuple[Wait, ...]

    def now(self) -> Interval:
        """What holds at the end: running, a wait, or nothing but messages."""
        open_ones = [interval for interval in self.intervals if interval.end >= self.end]
        nothing = Wait(WaitCause.DELIVERY, self.end, self.end)
        return min(
            open_ones,
            key=lambda interval: _ORDER.index(interval.kind),
            default=Interval(self.end, self.end, nothing.cause, nothing),
        )


def timeline(history: History, now: datetime) -> Timeline:
    """Lay out a history up to its end, or to now."""
    begin = history.course.pauses[0].begun_at
    end = history.course.ended_at or max(now, begin)
    of_units = {id_: unit_waits(history, unit, end) for id_, unit in history.work.units.items()}
    others = _other_waits(history, end)
    waits = [*others, *(wait for waits in of_units.values() for wait in waits)]
    found = [*_ran(history.work.units.values(), end)]
    found += [Interval(wait.begin, wait.end, wait.cause, wait) for wait in waits]
    intervals = [
        Interval(max(one.begin, begin), min(one.end, end), one.kind, one.wait)
        for one in found
        if one.begin < end and one.end > begin
    ]
    return Timeline(begin, end, tuple(intervals), of_units, others)


def totals(history: History, laid_out: Timeline) -> ExplainedTotals:
    """The sums; their parts add up to the whole."""
    seconds = _seconds_by_kind(laid_out)
    done = [unit for unit in history.work.units.values() if unit.done]
    errors = [
        abs(predicted_seconds(unit) - unit.measured_seconds) / unit.measured_seconds
        for unit in done
        if unit.compute and unit.measured_seconds > 0 and predicted_seconds(unit) > 0
    ]
    return ExplainedTotals(
        total_seconds=(laid_out.end - laid_out.begin).total_seconds(),
        device_busy_seconds=seconds.pop(DEVICE, 0.0),
        io_seconds=seconds.pop(IO, 0.0),
        waited_by_cause=seconds,
        device_seconds=sum(unit.device_seconds for unit in done),
        predicted_seconds=sum(predicted_seconds(unit) for unit in done),
        measured_seconds=sum(unit.measured_seconds for unit in done),
        prediction_error=median(errors) if errors else 0.0,
        units=len(done),
    )


def predicted_seconds(unit: UnitRecord) -> float:
    """What was predicted of one step of its batch."""
    batch = unit.batch
    return 0.0 if batch is None else batch.predicted_seconds / batch.window


def _ran(units: Iterable[UnitRecord], end: datetime) -> Iterator[Interval]:
    for unit in units:
        begun = unit.started_at
        if begun is None or (unit.dropped_at is not None and unit.ended_at is None):
            continue
        yield Interval(begun, unit.ended_at or end, DEVICE if unit.compute else IO)


def _other_waits(history: History, end: datetime) -> tuple[Wait, ...]:
    waits = [*late_reports(history)]
    for pause in [*history.course.pauses, *history.course.absences]:
        waits += pause_waits(pause, end)
    for loop in history.work.loops:
        waits += loop_waits(history, loop, end)
    return tuple(sorted(waits, key=lambda wait: wait.begin))


def _seconds_by_kind(laid_out: Timeline) -> dict[str, float]:
    """Sweep over the intervals, each moment to the first kind of the order that is open."""
    edges: list[tuple[datetime, int, int]] = []
    for interval in laid_out.intervals:
        rank = _ORDER.index(interval.kind)
        edges.append((interval.begin, 1, rank))
        edges.append((interval.end, -1, rank))
    edges.sort()
    open_now = [0] * len(_ORDER)
    seconds: dict[str, float] = {}
    last = laid_out.begin
    for at, change, rank in edges:
        _add(seconds, open_now, (at - last).total_seconds())
        open_now[rank] += change
        last = at
    _add(seconds, open_now, (laid_out.end - last).total_seconds())
    return seconds


def _add(seconds: dict[str, float], open_now: Sequence[int], gone: float) -> None:
    if gone <= 0:
        return
    first = next((rank for rank, count in enumerate(open_now) if count), len(_ORDER) - 1)
    kind = str(_ORDER[first])
    seconds[kind] = seconds.get(kind, 0.0) + gone
