"""Inputs of the scheduler that are events of requests' streams, found in the log by their ids."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fastvideo.events.catalog import payload_of
from fastvideo.events.records import StoredEvent
from fastvideo.events.store import EventLog
from fastvideo.replay.live_records import (
    LiveRecord,
    accepted_record,
    cancel_requested,
    fold_record,
    had_gone_before,
    submitted,
)
from fastvideo.replay.shard_entries import ShardEntry, missing_input
from fastvideo.requests.events import RequestAccepted, RequestCancelRequested
from fastvideo.requests.reading import read_events
from fastvideo.requests.state import STREAM_PREFIX
from fastvideo.scheduling.events import LeaderElected
from fastvideo.scheduling.inputs import SchedulerInput

AT_ONCE_MAX: Final = 8


class LogInputs:
    """Looks inputs up, in the order of the shard's stream."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        # The epoch of the term that is read, when it began from live requests alone.
        self._anew_epoch = 0

    async def complete(self, entries: Sequence[ShardEntry]) -> tuple[ShardEntry, ...]:
        """The entries with all their inputs.

        Raises CorruptLog for an input that the log does not have.
        """
        gate = asyncio.Semaphore(AT_ONCE_MAX)
        found = list(entries)
        missing = []
        for index, entry in enumerate(entries):
            if isinstance(entry.event, LeaderElected):
                self._anew_epoch = entry.event.epoch if entry.event.anew else 0
            elif entry.event is None:
                missing.append((index, self._complete(entry, self._anew_epoch, gate)))
        completed = await asyncio.gather(*(completing for _, completing in missing))
        for (index, _), entry in zip(missing, completed, strict=True):
            found[index] = entry
        return tuple(found)

    async def _complete(
        self, entry: ShardEntry, anew_epoch: int, gate: asyncio.Semaphore
    ) -> ShardEntry:
        async with gate:
            event = await self._find(entry.decided.input_event_id, anew_epoch)
        return replace(entry, event=event)

    async def _find(self, event_id: str, anew_epoch: int) -> SchedulerInput:
        stored = await event_by_id(self._log, event_id)
        if stored is None:
            raise missing_input(event_id)
        if stored.type == RequestAccepted.__name__:
            return submitted(await self._record(stored, anew_epoch))
        payload = payload_of(stored)
        if not isinstance(payload, RequestCancelRequested):
            raise missing_input(event_id)
        return cancel_requested(stored.stream_id.removeprefix(STREAM_PREFIX), payload)

    async def _record(self, accepted: StoredEvent, anew_epoch: int) -> LiveRecord:
        """The request as the term's leader knew it when it took it in."""
        record = accepted_record(accepted)
        if not anew_epoch:
            return record
        live = {accepted.stream_id: record}
        async for stored in read_events(self._log, record.spec.request_id, 1):
            if stored.fence_epoch >= anew_epoch:
                break
            if had_gone_before(stored, anew_epoch):
                fold_record(live, stored)
        return live[accepted.stream_id]


async def event_by_id(log: EventLog, event_id: str) -> StoredEvent | None:
    """An event of the log; None when there is none with this id."""
    position = await log.position_of(event_id)
    if position is None:
        return None
    found = await log.read_partition(position.partition, position.offset - 1, 1)
    return found[0] if found else None
