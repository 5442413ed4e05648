"""Records of behaviour in dictionaries: for unit tests."""

from collections.abc import Mapping, Sequence

from fastvideo.events.projections.projector import fresh_events
from fastvideo.events.records import StoredEvent
from fastvideo_gateway.behaviors import BehaviorQuery, BehaviorRow, recorded_rows


class MemoryBehaviors:
    """A `BehaviorIndex` that forgets everything when the process ends."""

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}
        self._rows: dict[str, BehaviorRow] = {}

    async def positions(self) -> Mapping[int, int]:
        return dict(self._positions)

    async def apply(self, events: Sequence[StoredEvent]) -> None:
        if not events:
            return
        partition = events[0].partition
        fresh = fresh_events(events, self._positions.get(partition, 0))
        for row in recorded_rows(fresh):
            self._rows.setdefault(row.behavior_id, row)
        if fresh:
            self._positions[partition] = fresh[-1].offset

    async def list_behaviors(self, query: BehaviorQuery) -> tuple[BehaviorRow, ...]:
        after, wanted = query.after, set(query.facets)
        found = [
            row
            for row in self._rows.values()
            if wanted <= set(row.facets)
            and (after is None or (row.recorded_at, row.behavior_id) < (after.at, after.item_id))
        ]
        found.sort(key=lambda row: (row.recorded_at, row.behavior_id), reverse=True)
        return tuple(found[: query.limit])

    async def close(self) -> None:
        """Nothing is held."""
