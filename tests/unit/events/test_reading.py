"""Pages of the log: in the order of recording, over partitions, honest about what is left."""

import itertools
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from fastvideo.errors import InvalidField
from fastvideo.events.catalog import new_event
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.reading import reader as reading
from fastvideo.events.reading.entries import FoundEvent, UnreadableEvent, entry_message, typed_entry
from fastvideo.events.reading.filters import EventFilter
from fastvideo.events.reading.index import MemoryEventIndex
from fastvideo.events.reading.reader import LogReader
from fastvideo.events.records import (
    AppendCommand,
    DamagedEvent,
    NewEvent,
    StoredEvent,
    StreamAppend,
)
from fastvideo.events.types import Event, EventMetadata
from fastvideo.requests.events import RequestProgressed

START = datetime(2026, 1, 2, tzinfo=UTC)
PARTITIONS = 3


class SteppingClock:
    """A second later each time."""

    def __init__(self) -> None:
        self._calls = itertools.count()

    def now(self) -> datetime:
        return START + timedelta(seconds=next(self._calls))

    def monotonic_s(self) -> float:
        return float(next(self._calls))


class BrokenStore(MemoryEventStore):
    """A store with events whose payloads do not have their digests."""

    broken: frozenset[str] = frozenset()

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        return self._checked(await super().read_partition(partition, after_offset, limit))

    async def read_stream(
        self, stream_id: str, after_version: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        return self._checked(await super().read_stream(stream_id, after_version, limit))

    def _checked(self, events: tuple[StoredEvent, ...]) -> tuple[StoredEvent, ...]:
        for stored in events:
            if stored.event_id in self.broken:
                raise DamagedEvent(stored)
        return events


async def a_log(events: int = 90, store: BrokenStore | None = None) -> BrokenStore:
    """Events of ten requests in turn, over three partitions."""
    log = store or BrokenStore(PARTITIONS, clock=SteppingClock())
    for number in range(events):
        await append_numbered(log, number)
    return log


async def append_numbered(log: BrokenStore, number: int) -> None:
    """Append the event with a number."""
    request_id = f"req_{number % 10}"
    metadata = EventMetadata(occurred_at=START, request_id=request_id)
    event = new_event(f"evt_{number}", RequestProgressed(fraction=0.5), metadata)
    await log.append(AppendCommand((StreamAppend(f"request-{request_id}", (event,)),)))


async def indexed(log: MemoryEventStore, heads: Mapping[int, int]) -> MemoryEventIndex:
    index = MemoryEventIndex()
    for partition, head in heads.items():
        await index.apply(await log.read_partition(partition, 0, head))
    return index


async def all_pages(
    reader: LogReader, wanted: EventFilter, size: int, *, newest_first: bool = False
) -> list[FoundEvent]:
    entries: list[FoundEvent] = []
    after: Mapping[int, int] = {}
    while True:
        page = await reader.read_log(wanted, after=after, page_size=size, newest_first=newest_first)
        assert len(page.entries) <= size
        entries += page.entries
        if page.complete:
            return entries
        assert page.next_after != after
        after = page.next_after


def ids(entries: list[FoundEvent]) -> list[str]:
    return [entry.event_id for entry in entries]


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("lag", [0, 10, 10_000])
async def test_pages_tell_all_in_the_order_of_recording(lag: int, newest_first: bool) -> None:
    log = await a_log()
    heads = {p: max(0, head - lag) for p, head in (await log.heads()).items()}
    reader = LogReader(log, await indexed(log, heads))
    expected = [f"evt_{number}" for number in range(90)]
    of_two = [f"evt_{number}" for number in range(90) if number % 10 in (2, 7)]
    wanted = EventFilter(request_ids=("req_2", "req_7"))
    if newest_first:
        expected.reverse()
        of_two.reverse()
    for size in (1, 7, 100):
        told = await all_pages(reader, EventFilter(), size, newest_first=newest_first)
        assert ids(told) == expected
        told = await all_pages(reader, wanted, size, newest_first=newest_first)
        assert ids(told) == of_two


async def test_times_bound_what_is_told() -> None:
    log = await a_log()
    reader = LogReader(log, await indexed(log, await log.heads()))
    wanted = EventFilter(since=START + timedelta(seconds=20), until=START + timedelta(seconds=25))
    assert ids(await all_pages(reader, wanted, 3)) == [f"evt_{n}" for n in range(20, 25)]


async def test_a_page_that_ran_out_of_work_says_that_more_may_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "SCANNED_MAX", 30)
    monkeypatch.setattr("fastvideo.events.reading.cursor.SCAN", 10)
    log = await a_log(300)
    reader = LogReader(log)
    wanted = EventFilter(request_ids=("req_of_nobody",))
    page = await reader.read_log(wanted)
    assert (page.entries, page.complete) == ((), False)
    assert sum(page.next_after.values()) < 300
    assert await all_pages(reader, wanted, 10) == []


@pytest.mark.parametrize("newest_first", [False, True])
async def test_a_broken_event_is_told_in_its_place(newest_first: bool) -> None:
    log = await a_log()
    log.broken = frozenset({"evt_41", "evt_89"})
    told = await all_pages(LogReader(log), EventFilter(), 20, newest_first=newest_first)
    assert sorted(ids(told)) == sorted(f"evt_{number}" for number in range(90))
    broken = [entry for entry in told if isinstance(entry, UnreadableEvent)]
    assert {entry.event_id for entry in broken} == {"evt_41", "evt_89"}
    assert all("digest" in entry.reason and entry.offset for entry in broken)
    stream = await LogReader(log).read_stream("request-req_1")
    assert [entry.stream_version for entry in stream.entries] == list(range(1, 10))
    of_its_request = await all_pages(LogReader(log), EventFilter(request_ids=("req_1",)), 20)
    assert "evt_41" in ids(of_its_request)
    assert "evt_89" not in ids(of_its_request)


async def test_an_event_of_the_future_is_told_as_unreadable() -> None:
    log = await a_log(1)
    event = NewEvent("evt_new", "ThingHappened", 1, b"\x08\x01")
    later = NewEvent("evt_later", "RequestProgressed", 99, b"\x08\x01")
    await log.append(AppendCommand((StreamAppend("request-req_0", (event, later)),)))
    page = await LogReader(log).read_stream("request-req_0")
    first, *others = [typed_entry(entry_message(found)) for found in page.entries]
    assert isinstance(first, Event)
    for entry in others:
        assert isinstance(entry, UnreadableEvent)
        assert entry.reason == "UNKNOWN_SCHEMA"


async def test_questions_that_cannot_be_are_refused() -> None:
    reader = LogReader(await a_log(3))
    for fields, field in (
        ({"after": {9: 0}}, "after"),
        ({"after": {0: 99}}, "after[0]"),
        ({"page_size": 1_001}, "page_size"),
    ):
        with pytest.raises(InvalidField) as caught:
            await reader.read_log(**fields)
        assert caught.value.field == field
    with pytest.raises(InvalidField) as caught:
        await reader.read_log(EventFilter(types=("nothing.*",)))
    assert caught.value.field == "filter.types"
    with pytest.raises(InvalidField) as caught:
        await reader.read_log(EventFilter(since=START, until=START))
    assert caught.value.field == "filter.until"
