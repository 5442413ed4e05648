"""Records of behaviour, found by any of their fields: a projection of the log, and its pages.

The first record of a sample counts, whichever attempt it is of; a later one has the same bits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fastvideo.errors import NotFound
from fastvideo.events.projections.projector import Projection
from fastvideo.events.records import StoredEvent
from fastvideo.events.views import event_for_view
from fastvideo.requests.behavior_facets import facets_of, wanted_facets
from fastvideo.rpc.paging import PagePosition, checked_page_size, page_position, page_token
from fastvideo.scheduling.traces import BehaviorRecorded
from fastvideo_gateway.listing import FRESHNESS_WAIT_S, Freshness


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviorRow:
    """A record, when it was recorded, and the words that it is found by."""

    behavior_id: str
    recorded_at: datetime
    facets: tuple[str, ...]
    recorded: BehaviorRecorded


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviorQuery:
    """Which records to list, newest first."""

    # Words that each must have.
    facets: tuple[str, ...]
    limit: int
    after: PagePosition | None = None


class BehaviorIndex(Projection, Protocol):
    """Records of behaviour by any field."""

    async def list_behaviors(self, query: BehaviorQuery) -> tuple[BehaviorRow, ...]:
        """The records of a query, newest first."""
        ...

    async def close(self) -> None:
        """Give back what the index holds."""
        ...


def recorded_rows(events: Iterable[StoredEvent]) -> tuple[BehaviorRow, ...]:
    """The rows that events add, the first of each sample."""
    rows: dict[str, BehaviorRow] = {}
    for stored in events:
        if stored.type != BehaviorRecorded.__name__:
            continue
        event = event_for_view(stored, "behaviors")
        if event is None or not isinstance(event.payload, BehaviorRecorded):
            continue
        payload = event.payload
        row = BehaviorRow(
            behavior_id=payload.behavior_id,
            recorded_at=event.metadata.occurred_at,
            facets=facets_of(payload.behavior_id, payload.record),
            recorded=payload,
        )
        rows.setdefault(payload.behavior_id, row)
    return tuple(rows.values())


@dataclass(frozen=True, slots=True)
class BehaviorPage:
    """Some records, and the token for the next; an empty token says there are no more."""

    behaviors: tuple[BehaviorRecorded, ...]
    next_page_token: str


class BehaviorLister:
    """Reads the index, as fresh as the log when it can be had in time."""

    def __init__(self, index: BehaviorIndex, freshness: Freshness) -> None:
        self._index = index
        self._freshness = freshness

    async def request_of(self, behavior_id: str) -> str:
        """The request that a record is of. Raises NotFound for an unknown record."""
        page = await self.page({"behavior_id": behavior_id})
        for behavior in page.behaviors:
            return behavior.record.request_id
        raise NotFound(f"no behaviour {behavior_id} was recorded", subject="behavior_id")

    async def page(
        self, where: Mapping[str, str], *, page_size: int = 0, token: str = ""
    ) -> BehaviorPage:
        """One page. Raises InvalidField for a condition, size or token that is not allowed."""
        size, facets = checked_page_size(page_size), wanted_facets(where)
        filters = ("behaviors", *facets)
        query = BehaviorQuery(facets=facets, limit=size + 1, after=page_position(token, *filters))
        await self._freshness.is_fresh(FRESHNESS_WAIT_S)
        found = await self._index.list_behaviors(query)
        behaviors = tuple(row.recorded for row in found[:size])
        if len(found) <= size:
            return BehaviorPage(behaviors, "")
        last = found[size - 1]
        position = PagePosition(last.recorded_at, last.behavior_id)
        return BehaviorPage(behaviors, page_token(position, *filters))
