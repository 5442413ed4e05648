"""A request's past, over a log in memory."""

from datetime import UTC, datetime, timedelta

import pytest

from fastvideo.clock import ManualClock
from fastvideo.errors import InvalidField, NotFound
from fastvideo.events.catalog import event_of, new_event
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.requests.events import RequestAccepted, RequestProgressed, RequestStarted
from fastvideo.requests.state import fold, stream_of
from fastvideo.requests.types import OutputSpec, RequestKind, RequestSpec, SamplingParams
from fastvideo_gateway.past import CHECKPOINT_EVERY, KEPT_FOR, RequestPast

STEPS = 2 * CHECKPOINT_EVERY + 100
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPEC = RequestSpec(
    request_id="r",
    kind=RequestKind.GENERATION,
    sampling=SamplingParams(),
    outputs=OutputSpec(),
    tenant_id="t",
)


class Counting(MemoryEventStore):
    """Counts the events that are read."""

    events_read = 0

    async def read_stream(self, stream_id: str, after_version: int = 0, limit: int = 1000):  # type: ignore[no-untyped-def]
        found = await super().read_stream(stream_id, after_version, limit)
        self.events_read += len(found)
        return found


@pytest.fixture
async def log() -> Counting:
    store = Counting()
    progress = (RequestProgressed(fraction=i / STEPS, step=i, steps=STEPS) for i in range(STEPS))
    payloads: tuple[EventPayload, ...] = (
        RequestAccepted(spec=SPEC),
        RequestStarted(attempt=1),
        *progress,
    )
    metadata = EventMetadata(tenant_id="t", occurred_at=datetime(2026, 1, 1, tzinfo=UTC))
    events = tuple(new_event(f"e{i}", one, metadata) for i, one in enumerate(payloads))
    await store.append(AppendCommand(streams=(StreamAppend(stream_of("r"), events),)))
    return store


async def test_the_state_at_any_version_is_the_fold_up_to_it(log: Counting) -> None:
    past = RequestPast(log, ManualClock(NOON))
    stored = await log.read_stream(stream_of("r"), 0, 10_000)
    for version in (1, 2, 3, CHECKPOINT_EVERY, CHECKPOINT_EVERY + 1, STEPS, STEPS + 2, 5):
        found = await past.state_at("r", "t", version)
        assert found.state == fold(map(event_of, stored[:version]))
        assert found.before == fold(map(event_of, stored[: version - 1]))
        assert found.event.stream_version == version


async def test_what_is_near_to_what_was_looked_at_is_not_folded_anew(log: Counting) -> None:
    clock = ManualClock(NOON)
    past = RequestPast(log, clock)
    await past.state_at("r", "t", STEPS)
    log.events_read = 0
    await past.state_at("r", "t", STEPS - 1)
    assert log.events_read <= CHECKPOINT_EVERY + 1
    # What tenants wrote is not kept for long.
    clock.set(NOON + KEPT_FOR + timedelta(seconds=1))
    log.events_read = 0
    await past.state_at("r", "t", STEPS - 1)
    assert log.events_read >= STEPS - 1


async def test_requests_of_others_and_versions_that_are_not_there(log: Counting) -> None:
    past = RequestPast(log, ManualClock(NOON))
    with pytest.raises(NotFound):
        await past.state_at("r", "another", 1)
    with pytest.raises(NotFound):
        await past.events("unknown", "t")
    for version in (0, STEPS + 3):
        with pytest.raises(InvalidField, match="version"):
            await past.state_at("r", "t", version)
        with pytest.raises(InvalidField, match="version"):
            await past.event("r", "t", version)
    with pytest.raises(InvalidField, match="limit"):
        await past.events("r", "t", limit=1_001)


async def test_events_come_page_by_page(log: Counting) -> None:
    past = RequestPast(log, ManualClock(NOON))
    page = await past.events("r", "t", after=STEPS, limit=5)
    assert [found.stream_version for found in page.events] == [STEPS + 1, STEPS + 2]
    assert page.stream_version == STEPS + 2
