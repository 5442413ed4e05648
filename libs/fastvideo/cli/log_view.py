"""Entries of the log as lines for people and as JSON."""

from collections.abc import Mapping
from typing import Any, Final

from fastvideo.cli.report import event_record, plain_record
from fastvideo.events.reading.entries import Entry, UnreadableEvent
from fastvideo.events.reading.stats import LogStats
from fastvideo.events.reading.verifying import LogFault
from fastvideo.events.types import Event
from fastvideo.scheduling.events import BatchExecuted, SchedulerDecided

_MIB: Final = 1024 * 1024


def entry_record(entry: Entry) -> dict[str, Any]:
    """An entry as JSON: an event as `request watch` gives it, or `unreadable` with the reason."""
    if isinstance(entry, UnreadableEvent):
        return {"unreadable": plain_record(entry)}
    return event_record(entry)


def entry_line(entry: Entry) -> str:
    """An entry in one line: where, when, what, about what."""
    place = f"{entry.partition}:{entry.offset:<8}"
    stream = f"{entry.stream_id}@{entry.stream_version}"
    if isinstance(entry, UnreadableEvent):
        return f"{place} {'':<23}  {'UNREADABLE ' + entry.type:<20}  {stream:<15}  {entry.reason}"
    at = f"{entry.recorded_at:%Y-%m-%d %H:%M:%S.%f}"[:-3]
    return f"{place} {at}  {entry.name:<20}  {stream:<15}  {_about(entry)}".rstrip()


def _about(event: Event) -> str:
    metadata = event.metadata
    request = metadata.request_id
    known = event.stream_id.endswith(request) if request else True
    parts = [] if known else [request]
    if metadata.worker_id:
        parts.append(f"on {metadata.worker_id}")
    said = _said(event)
    return "  ".join([*parts, said] if said else parts)


def _said(event: Event) -> str:
    """What the event says, where a line can hold it."""
    from fastvideo.client.waiting import describe

    payload = event.payload
    match payload:
        case BatchExecuted():
            requests = list(dict.fromkeys(result.loop.request_id for result in payload.results))
            took = f"{payload.measured_seconds * 1000:.1f} ms"
            shared = f" for {', '.join(requests[:3])}{' ...' if len(requests) > 3 else ''}"
            size = len(payload.results)
            return f"{payload.kind} x{size} in {took}{shared if len(requests) > 1 else ''}"
        case SchedulerDecided():
            names = [type(decision).__name__ for decision in payload.decisions]
            return ", ".join(names[:4]) + (" ..." if len(names) > 4 else "")
        case _:
            return describe(event)


def stats_record(stats: LogStats) -> dict[str, Any]:
    """The figures as JSON."""
    return {
        "events": stats.events,
        "streams": stats.streams,
        "bytes": stats.bytes,
        "log_epoch": stats.log_epoch,
        "heads": {str(partition): head for partition, head in sorted(stats.heads.items())},
        "first_recorded_at": stats.first_recorded_at and stats.first_recorded_at.isoformat(),
        "last_recorded_at": stats.last_recorded_at and stats.last_recorded_at.isoformat(),
        "types": [plain_record(count) for count in stats.types],
        "projection_lag": dict(stats.projection_lag),
        "quarantined": stats.quarantined,
        "archived": stats.archived,
    }


def stats_lines(stats: LogStats) -> list[str]:
    """The figures for people."""
    lines = [
        f"events      {stats.events:,} in {stats.streams:,} streams, "
        f"{stats.bytes / _MIB:,.1f} MiB, epoch {stats.log_epoch}",
        f"partitions  {_sorted(stats.heads)}",
    ]
    if stats.first_recorded_at is not None and stats.last_recorded_at is not None:
        lines.append(
            f"recorded    {stats.first_recorded_at:%Y-%m-%d %H:%M:%S} to "
            f"{stats.last_recorded_at:%Y-%m-%d %H:%M:%S} UTC"
        )
    lines.append(f"behind      {_sorted(stats.projection_lag) or 'nobody'}")
    if stats.quarantined:
        lines.append(f"put aside   {stats.quarantined:,} events that a consumer could not handle")
    if stats.archived:
        lines.append(f"archived    {stats.archived:,} events")
    lines += ["", f"{'type':<28}{'events':>12}{'MiB':>10}"]
    lines += [
        f"{count.name or count.type:<28}{count.events:>12,}{count.payload_bytes / _MIB:>10,.2f}"
        for count in stats.types
    ]
    return lines


def fault_line(fault: LogFault) -> str:
    """A fault, with where it stands."""
    parts = [fault.kind]
    if fault.offset:
        parts.append(f"at {fault.partition}:{fault.offset}")
    if fault.stream_id:
        parts.append(f"in {fault.stream_id}")
    if fault.event_id:
        parts.append(f"event {fault.event_id}")
    return f"{' '.join(parts)}: {fault.message}"


def _sorted(figures: Mapping[Any, int]) -> str:
    return ", ".join(f"{name}: {figure:,}" for name, figure in sorted(figures.items()))
