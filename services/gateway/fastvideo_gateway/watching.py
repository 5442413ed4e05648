"""Watch: a request's events from any sequence number, replayed and then live.

Live events are handed from one subscription of the log to every watcher of the request, through
a small buffer each. Whoever falls behind its buffer reads the log instead: nothing is lost, and
nothing piles up in memory.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from fastvideo.errors import CorruptLog, InvalidField, NotFound, Unavailable
from fastvideo.events.catalog import TERMINAL
from fastvideo.events.records import StoredEvent
from fastvideo.events.store import EventLog
from fastvideo.events.subscription import LogSubscription, PollLimits
from fastvideo.events.wakeups import Wakeups
from fastvideo.requests.reading import read_events
from fastvideo.requests.standing import Standings
from fastvideo.requests.state import STREAM_PREFIX, is_terminal, stream_of
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

BUFFER_EVENTS_MAX: Final = 64
TOUCHED_MAX: Final = 200
# A watcher looks into the log this often even when it is told of nothing.
SAFETY_READ_S: Final = 30.0
WATCHED_EVENTS_MAX: Final = 256
"""The newest events are kept as they are sent, for all who watch a request."""
RETRY_S: Final = 0.2


class _Watcher:
    """The buffer between the subscription and one watch."""

    def __init__(self, events_max: int) -> None:
        self._buffer: deque[StoredEvent] = deque()
        self._events_max = events_max
        self._told = asyncio.Event()

    def tell(self, stored: StoredEvent) -> None:
        """Hand an event over; a full buffer is given up, since the log has it all."""
        if len(self._buffer) >= self._events_max:
            self._buffer.clear()
        else:
            self._buffer.append(stored)
        self._told.set()

    def look(self) -> None:
        """Have it look into the log."""
        self._buffer.clear()
        self._told.set()

    async def take(self, timeout_s: float) -> Sequence[StoredEvent]:
        """What was handed over, or nothing after the timeout and after an overflow."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._told.wait()
        except TimeoutError:
            return ()
        taken = tuple(self._buffer)
        self._buffer.clear()
        self._told.clear()
        return taken


class _Touched:
    """The requests that something happened to, each once, until they are taken."""

    def __init__(self, requests_max: int) -> None:
        self._ids: dict[str, None] = {}
        self._requests_max = requests_max
        self._told = asyncio.Event()

    def tell(self, request_id: str) -> None:
        """Note a request; past the limit the oldest is forgotten."""
        self._ids.pop(request_id, None)
        self._ids[request_id] = None
        if len(self._ids) > self._requests_max:
            del self._ids[next(iter(self._ids))]
        self._told.set()

    async def take(self) -> tuple[str, ...]:
        """Those that were noted, at least one."""
        await self._told.wait()
        self._told.clear()
        taken = tuple(self._ids)
        self._ids.clear()
        return taken


class WatchHub:
    """Hands the log's newest events to whoever watches their requests."""

    def __init__(
        self,
        log: EventLog,
        wakeups: Wakeups | None,
        limits: PollLimits | None = None,
        *,
        standings: Standings | None = None,
        buffer_events_max: int = BUFFER_EVENTS_MAX,
        safety_read_s: float = SAFETY_READ_S,
    ) -> None:
        self._log = log
        self._standings = standings or Standings(log)
        self._wakeups = wakeups
        self._limits = limits
        self._buffer_events_max = buffer_events_max
        self._safety_read_s = safety_read_s
        self._watchers: defaultdict[str, set[_Watcher]] = defaultdict(set)
        self._touched: set[_Touched] = set()

    @property
    def watcher_count(self) -> int:
        """How many watches run."""
        return sum(map(len, self._watchers.values()))

    async def run(self) -> None:
        """Hand out what is appended from now on, for ever; ends by cancellation.

        Raises CorruptLog when the log has a gap.
        """
        heads = await self._heads()
        # What was appended between their last look and these heads nobody tells them of.
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.look()
        subscription = LogSubscription(self._log, heads, self._wakeups, self._limits)
        while True:
            for stored in await subscription.next_batch():
                for watcher in self._watchers.get(stored.stream_id, ()):
                    watcher.tell(stored)
                if self._touched and stored.stream_id.startswith(STREAM_PREFIX):
                    for touched in self._touched:
                        touched.tell(stored.stream_id.removeprefix(STREAM_PREFIX))

    async def touched(self) -> AsyncGenerator[tuple[str, ...], None]:
        """Ids of the requests that something happens to from now on, for ever.

        What happens while the caller is busy comes together; the newest `TOUCHED_MAX` of it.
        """
        touched = _Touched(TOUCHED_MAX)
        self._touched.add(touched)
        try:
            while True:
                yield await touched.take()
        finally:
            self._touched.discard(touched)

    async def _heads(self) -> Mapping[int, int]:
        while True:
            try:
                return await self._log.heads()
            except Unavailable as error:
                _LOG.warning("live watches wait for the database", error=error.message)
                await asyncio.sleep(RETRY_S)

    async def watch(
        self, request_id: str, after_sequence: int, tenant_id: str
    ) -> AsyncGenerator[StoredEvent, None]:
        """The request's events after a sequence number, ending with the terminal one.

        Sequence numbers rise by one. Raises NotFound for an unknown request and InvalidField
        for a sequence number that the request has not reached.
        """
        with self._watcher(request_id) as watcher:
            state = await self._standings.read(request_id)
            if state is None or state.spec.tenant_id != tenant_id or state.deleted_at:
                raise NotFound(f"request {request_id} does not exist", subject="request_id")
            if after_sequence > state.last_sequence:
                allowed = f"0 to {state.last_sequence}"
                raise InvalidField("after_sequence", after_sequence, allowed)
            if is_terminal(state) and await self._ended_before(request_id, after_sequence):
                return
            sequence = after_sequence
            live: Sequence[StoredEvent] = ()
            while True:
                async for stored in self._following(request_id, sequence, live):
                    sequence = stored.stream_version
                    yield stored
                    if stored.type in TERMINAL:
                        return
                live = await watcher.take(self._safety_read_s)

    async def _following(
        self, request_id: str, sequence: int, live: Sequence[StoredEvent]
    ) -> AsyncIterator[StoredEvent]:
        """The events after a sequence number: the live ones when they follow, else the log's."""
        fresh = [stored for stored in live if stored.stream_version > sequence]
        if fresh and fresh[0].stream_version == sequence + 1:
            for stored in fresh:
                _check_next(stored, sequence)
                sequence = stored.stream_version
                yield stored
        elif fresh or not live:
            async for stored in read_events(self._log, request_id, sequence):
                _check_next(stored, sequence)
                sequence = stored.stream_version
                yield stored

    async def _ended_before(self, request_id: str, after_sequence: int) -> bool:
        """Whether the terminal event is not after a sequence number."""
        async for stored in read_events(self._log, request_id, after_sequence):
            if stored.type in TERMINAL:
                return False
        return True

    @contextmanager
    def _watcher(self, request_id: str) -> Iterator[_Watcher]:
        stream_id = stream_of(request_id)
        watcher = _Watcher(self._buffer_events_max)
        self._watchers[stream_id].add(watcher)
        try:
            yield watcher
        finally:
            self._watchers[stream_id].discard(watcher)
            if not self._watchers[stream_id]:
                del self._watchers[stream_id]


def _check_next(stored: StoredEvent, sequence: int) -> None:
    if stored.stream_version != sequence + 1:
        raise CorruptLog(
            f"stream {stored.stream_id} goes from version {sequence} to {stored.stream_version}",
            reason="STREAM_GAP",
            subject=stored.stream_id,
        )
