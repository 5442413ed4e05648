"""The options by which commands about the log choose events."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fastvideo.errors import InvalidField

if TYPE_CHECKING:
    from fastvideo.events.reading.filters import EventFilter

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

Requests = Annotated[
    list[str] | None,
    typer.Option("--request", metavar="ID", help="About this request; may be repeated."),
]
Sessions = Annotated[
    list[str] | None, typer.Option("--session", metavar="ID", help="About this session.")
]
Models = Annotated[
    list[str] | None, typer.Option("--model", metavar="ID", help="About this model.")
]
Workers = Annotated[
    list[str] | None, typer.Option("--worker", metavar="ID", help="About this worker.")
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type", metavar="NAME", help='Such as "request.failed", "trace.*" or "BatchExecuted".'
    ),
]
Tenants = Annotated[list[str] | None, typer.Option("--tenant", metavar="ID", help="Of a tenant.")]
Streams = Annotated[
    list[str] | None, typer.Option("--stream", metavar="ID", help="In this stream.")
]
Since = Annotated[
    str,
    typer.Option(
        metavar="WHEN",
        help='Recorded since: "2026-01-31T12:00:00Z", or so long ago, such as 15m, 2h or 3d.',
    ),
]
Until = Annotated[str, typer.Option(metavar="WHEN", help="Recorded before; as --since.")]


def event_filter(
    *,
    requests: Iterable[str] | None = None,
    sessions: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
    workers: Iterable[str] | None = None,
    types: Iterable[str] | None = None,
    tenants: Iterable[str] | None = None,
    streams: Iterable[str] | None = None,
    since: str = "",
    until: str = "",
) -> "EventFilter":
    """The filter of the options that were given.

    Raises BadParameter for what nothing can match: a time or a type that is none, an end before
    the beginning, too many values.
    """
    from fastvideo.events.reading.filters import EventFilter, Matcher

    wanted = EventFilter(
        request_ids=tuple(requests or ()),
        session_ids=tuple(sessions or ()),
        model_ids=tuple(models or ()),
        worker_ids=tuple(workers or ()),
        types=tuple(types or ()),
        tenant_ids=tuple(tenants or ()),
        stream_ids=tuple(streams or ()),
        since=parse_moment(since, "--since"),
        until=parse_moment(until, "--until"),
    )
    try:
        Matcher(wanted)
    except InvalidField as error:
        raise typer.BadParameter(error.message, param_hint=_hint(error)) from error
    return wanted


def _hint(error: InvalidField) -> str:
    """The option that a field of a filter comes from: --request of filter.request_ids."""
    field = error.subject.removeprefix("filter.")
    return f"--{field.removesuffix('_ids').removesuffix('s')}"


def parse_moment(text: str, option: str, now: datetime | None = None) -> datetime | None:
    """A moment, or so long before now; None of nothing. A moment without a zone is UTC."""
    if not text:
        return None
    if found := re.fullmatch(r"(\d{1,9})([smhd])", text):
        try:
            return (now or datetime.now(UTC)) - timedelta(**{_UNITS[found[2]]: int(found[1])})
        except (OverflowError, ValueError):
            raise typer.BadParameter(f"{text!r} is before all time", param_hint=option) from None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is neither a time such as 2026-01-31T12:00:00Z nor a span such as 15m",
            param_hint=option,
        ) from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
