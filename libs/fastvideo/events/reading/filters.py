"""Which events of the log to let through."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fastvideo.errors import InvalidField
from fastvideo.events.catalog import NAMES
from fastvideo.events.reading.entries import FoundEvent, UnreadableEvent
from fastvideo.events.reading.terms import (
    MODEL,
    REQUEST,
    SESSION,
    STREAM,
    TENANT,
    TYPE,
    WORKER,
    envelope_terms,
    term,
    terms_of,
)
from fastvideo.events.records import StoredEvent

VALUES_MAX: Final = 100
"""Values of one field of a filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """What to let through; every field that is set must agree, and in a field any of its values."""

    request_ids: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    model_ids: tuple[str, ...] = ()
    worker_ids: tuple[str, ...] = ()
    # Wire names ("RequestAccepted"), public names ("request.accepted"), or the beginning of
    # public names ("request.*").
    types: tuple[str, ...] = ()
    tenant_ids: tuple[str, ...] = ()
    # Recorded at or after, and before.
    since: datetime | None = None
    until: datetime | None = None
    stream_ids: tuple[str, ...] = ()


class Matcher:
    """A filter made ready. Raises InvalidField, naming the field, for what nothing can match."""

    def __init__(self, wanted: EventFilter) -> None:
        self.since = wanted.since
        self.until = wanted.until
        # An event must be about one of each group.
        self.groups: tuple[frozenset[str], ...] = tuple(_groups(wanted))

    @property
    def lets_all_through(self) -> bool:
        """Whether it asks for nothing in particular."""
        return not self.groups and self.since is None and self.until is None

    def matches(self, found: FoundEvent) -> bool:
        """Whether to let an event through; a broken one passes by what is known of it."""
        if isinstance(found, UnreadableEvent):
            return self._may_be_about(found)
        return self.is_in_time(found) and self._is_about(found)

    def is_in_time(self, found: FoundEvent) -> bool:
        """Whether an event was recorded when it is asked for; of a broken one that is not known."""
        if isinstance(found, UnreadableEvent):
            return True
        if self.since is not None and found.recorded_at < self.since:
            return False
        return self.until is None or found.recorded_at < self.until

    def _is_about(self, stored: StoredEvent) -> bool:
        if not self.groups:
            return True
        terms = terms_of(stored)
        return all(not group.isdisjoint(terms) for group in self.groups)

    def _may_be_about(self, broken: UnreadableEvent) -> bool:
        """Whether what is known of a broken event agrees with every group that it speaks to."""
        known = envelope_terms(broken.type, broken.stream_id)
        kinds = {name.partition(":")[0] for name in known}
        return all(
            group & known or not any(name.partition(":")[0] in kinds for name in group)
            for group in self.groups
        )


def types_named(names: Iterable[str]) -> frozenset[str]:
    """The wire names of types; "request.*" names all whose public names begin so.

    Raises InvalidField for a name that no type has.
    """
    found: set[str] = set()
    for name in names:
        matching = {
            wire_name for wire_name, public in NAMES.items() if _names(name, wire_name, public)
        }
        if not matching:
            raise InvalidField("filter.types", name, ", ".join(NAMES.values()))
        found |= matching
    return frozenset(found)


def _names(name: str, wire_name: str, public: str) -> bool:
    if name.endswith("*"):
        return public.startswith(name[:-1])
    return name in (wire_name, public)


def _groups(wanted: EventFilter) -> Iterator[frozenset[str]]:
    if wanted.types:
        _check_count("filter.types", wanted.types)
        yield frozenset(term(TYPE, name) for name in types_named(wanted.types))
    for field, kind in (
        ("request_ids", REQUEST),
        ("session_ids", SESSION),
        ("model_ids", MODEL),
        ("worker_ids", WORKER),
        ("tenant_ids", TENANT),
        ("stream_ids", STREAM),
    ):
        values: tuple[str, ...] = getattr(wanted, field)
        if values:
            _check_count(f"filter.{field}", values)
            yield frozenset(term(kind, value) for value in values)
    if wanted.since is not None and wanted.until is not None and wanted.since >= wanted.until:
        raise InvalidField("filter.until", wanted.until.isoformat(), "a moment after filter.since")


def _check_count(field: str, values: tuple[str, ...]) -> None:
    if len(values) > VALUES_MAX:
        raise InvalidField(field, f"{len(values)} values", f"at most {VALUES_MAX}")
