"""The event log for clients: read it by filter, follow it, measure it, have it verified."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from fastvideo import wire
from fastvideo.api.events.v1 import log_pb2
from fastvideo.client.calls import Backoff, Calls, Silence, typed_errors
from fastvideo.client.submission import carrying, instance
from fastvideo.errors import Unavailable
from fastvideo.events.reading.entries import Entry, typed_entry
from fastvideo.events.reading.filters import EventFilter
from fastvideo.events.reading.index import TypeCount
from fastvideo.events.reading.stats import LogStats
from fastvideo.events.reading.verifying import LogFault, VerifyProgress

if TYPE_CHECKING:
    from fastvideo.api.events.v1.log_pb2_grpc import EventLogServiceAsyncStub

PAGE_SIZE: Final = 1_000
ALL: Final = EventFilter()


@dataclass(frozen=True, slots=True)
class LogEntries:
    """A page of the log."""

    entries: tuple[Entry, ...]
    # By partition, where the next page begins.
    next_after: Mapping[int, int]
    complete: bool


class LogClient:
    """What `AsyncClient.log` offers. It sees the whole log, whoever's requests are in it.

    An entry is an `Event`, or an `UnreadableEvent` that names what cannot be read and why.
    """

    def __init__(self, stub: "EventLogServiceAsyncStub", calls: Calls) -> None:
        self._stub = stub
        self._calls = calls

    async def read_stream(
        self, stream_id: str, *, after_version: int = 0, limit: int | None = None
    ) -> AsyncGenerator[Entry, None]:
        """The events of a stream after a version, oldest first; at most `limit`."""
        left = limit
        while left is None or left > 0:
            request = log_pb2.ReadStreamRequest(
                stream_id=stream_id, after_version=after_version, page_size=_page_size(left)
            )
            answer = await self._calls(self._stub.ReadStream, request)
            for message in answer.entries:
                entry = typed_entry(message)
                after_version = entry.stream_version
                yield entry
            left = None if left is None else left - len(answer.entries)
            if not answer.entries or after_version >= answer.stream_version:
                return

    async def read(
        self,
        wanted: EventFilter = ALL,
        *,
        after: Mapping[int, int] | None = None,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> AsyncGenerator[Entry, None]:
        """What a filter lets through, in the order of recording; at most `limit`.

        `after` begins behind an offset of each partition or, newest first, before it.
        """
        left = limit
        pages = self.pages(
            wanted, after=after, newest_first=newest_first, page_size=_page_size(limit)
        )
        async with aclosing(pages):
            async for page in pages:
                for entry in page.entries[:left]:
                    yield entry
                left = None if left is None else left - len(page.entries)
                if left is not None and left <= 0:
                    return

    async def pages(
        self,
        wanted: EventFilter = ALL,
        *,
        after: Mapping[int, int] | None = None,
        newest_first: bool = False,
        page_size: int = 0,
    ) -> AsyncGenerator[LogEntries, None]:
        """As `read`, page by page; a page may be empty though more follow."""
        position = dict(after or {})
        while True:
            request = log_pb2.ReadLogRequest(
                filter=_filter(wanted),
                after=position,
                page_size=page_size,
                newest_first=newest_first,
            )
            answer = await self._calls(self._stub.ReadLog, request)
            position = dict(answer.next_after)
            entries = tuple(map(typed_entry, answer.entries))
            yield LogEntries(entries, position, answer.complete)
            if answer.complete:
                return

    async def subscribe(
        self,
        wanted: EventFilter = ALL,
        *,
        after: Mapping[int, int] | None = None,
        from_end: bool = False,
    ) -> AsyncGenerator[Entry, None]:
        """What a filter lets through, from positions on or from the end, and then as it comes.

        For ever, until it is closed. Cuts are bridged: nothing is missed and nothing comes twice.
        Raises Unavailable when no server answers for the policy's silence.
        """
        self._calls.check()
        position = dict(after or {})
        backoff = Backoff(self._calls.policy)
        silence = Silence(self._calls.policy)
        while True:
            silence.begin()
            try:
                told = self._told(wanted, position, from_end=from_end)
                async with aclosing(told):
                    async for response in told:
                        silence.heard()
                        backoff.reset()
                        # What the end was is known now.
                        from_end = False
                        position.update(response.position)
                        if response.HasField("entry"):
                            yield typed_entry(response.entry)
                lost = Unavailable("the subscription ended")
            except Unavailable as error:
                lost = error
            if silence.is_over():
                raise lost
            await backoff.pause()

    async def stats(self) -> LogStats:
        """How much is in the log."""
        answer = await self._calls(self._stub.GetLogStats, log_pb2.GetLogStatsRequest())
        return LogStats(
            heads=dict(answer.heads),
            log_epoch=answer.log_epoch,
            events=answer.events,
            streams=answer.streams,
            bytes=answer.bytes,
            first_recorded_at=_moment(answer, "first_recorded_at"),
            last_recorded_at=_moment(answer, "last_recorded_at"),
            types=tuple(wire.from_proto(TypeCount, count) for count in answer.types),
            projection_lag=dict(answer.projection_lag),
            quarantined=answer.quarantined,
            archived=answer.archived,
        )

    async def verify(
        self, *, after: Mapping[int, int] | None = None
    ) -> AsyncGenerator[VerifyProgress, None]:
        """Have the log checked; tells how far it is and what is wrong, the last time complete.

        With positions only the events behind them are checked. Leaving it ends the check. Raises
        ResourceExhausted while the log is verified for somebody else.
        """
        self._calls.check()
        responses = self._stub.VerifyLog(log_pb2.VerifyLogRequest(after=after or {}))
        complete = False
        try:
            with typed_errors():
                async for response in responses:
                    complete = response.complete
                    yield VerifyProgress(
                        events_checked=response.events_checked,
                        events_total=response.events_total,
                        faults=tuple(wire.from_proto(LogFault, found) for found in response.faults),
                        complete=response.complete,
                        seconds=response.seconds,
                    )
        finally:
            responses.cancel()
        if not complete:
            raise Unavailable("the log was not verified to its end")

    async def _told(
        self, wanted: EventFilter, position: Mapping[int, int], *, from_end: bool
    ) -> AsyncGenerator[log_pb2.SubscribeEventsResponse, None]:
        """One uncut stretch."""
        request = log_pb2.SubscribeEventsRequest(
            filter=_filter(wanted),
            after={} if from_end else position,
            from_end=from_end,
        )
        responses = self._stub.SubscribeEvents(request)
        try:
            with typed_errors():
                async for response in responses:
                    yield response
        finally:
            responses.cancel()


def _filter(wanted: EventFilter) -> log_pb2.EventFilter:
    with carrying("wanted", instance("wanted", wanted, EventFilter)):
        message: log_pb2.EventFilter = wire.to_proto(wanted)
    return message


def _page_size(left: int | None) -> int:
    return PAGE_SIZE if left is None else min(max(left, 1), PAGE_SIZE)


def _moment(message: Any, field: str) -> datetime | None:
    if not message.HasField(field):
        return None
    moment: datetime = getattr(message, field).ToDatetime(UTC)
    return moment
