"""Many events at once, written past the gateway."""

from datetime import UTC, datetime, timedelta
from typing import Final

from fastvideo.events.catalog import new_event
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.ids import derived_id
from fastvideo.requests.events import (
    RequestAccepted,
    RequestCompleted,
    RequestProgressed,
    RequestStarted,
)
from fastvideo.requests.state import stream_of
from fastvideo.requests.types import (
    OutputSpec,
    RequestKind,
    RequestMetrics,
    RequestSpec,
    SamplingParams,
    TextPart,
)
from fastvideo.rpc.identity import DEFAULT_TENANT
from tests.integration.gateway.worlds import MODEL, World

EVENTS_PER_APPEND: Final = 5_000
EVENTS_OF_SMALL: Final = 10


def story_of(request_id: str, prompt: str, events: int) -> tuple[EventPayload, ...]:
    """A request from its acceptance to its completion, so many events long."""
    spec = RequestSpec(
        request_id=request_id,
        kind=RequestKind.GENERATION,
        model_id=MODEL,
        program_id="text_to_video",
        inputs=(TextPart(role="prompt", text=prompt),),
        sampling=SamplingParams(width=48, height=48, num_frames=9, fps=8, steps=events, seed=7),
        outputs=OutputSpec(video=True),
        tenant_id=DEFAULT_TENANT,
    )
    steps = events - 3
    progress = (
        RequestProgressed(fraction=(i + 1) / steps, node_id="denoise", step=i + 1, steps=steps)
        for i in range(steps)
    )
    done = RequestCompleted(metrics=RequestMetrics(total_seconds=1.5, units=steps, attempts=1))
    return (RequestAccepted(spec=spec), RequestStarted(attempt=1), *progress, done)


async def seed(world: World, *, requests: int, long_events: int) -> str:
    """Small requests, and after them a long one, whose id this gives."""
    begun = datetime.now(UTC) - timedelta(hours=1)
    streams: list[StreamAppend] = []
    waiting = 0
    for number in range(requests):
        request_id = derived_id("req", "small", str(number))
        payloads = story_of(request_id, f"a small three number {number}", EVENTS_OF_SMALL)
        streams += _appends(request_id, payloads, begun + timedelta(seconds=number / 10))
        waiting += EVENTS_OF_SMALL
        if waiting >= EVENTS_PER_APPEND or number == requests - 1:
            await world.log.append(AppendCommand(streams=tuple(streams)))
            streams, waiting = [], 0
    long_id = derived_id("req", "long", str(long_events))
    payloads = story_of(long_id, "a very long three", long_events)
    for append in _appends(long_id, payloads, datetime.now(UTC)):
        await world.log.append(AppendCommand(streams=(append,)))
    return long_id


def _appends(
    request_id: str, payloads: tuple[EventPayload, ...], begun: datetime
) -> list[StreamAppend]:
    events = []
    for number, payload in enumerate(payloads):
        metadata = EventMetadata(
            tenant_id=DEFAULT_TENANT,
            request_id=request_id,
            model_id=MODEL,
            occurred_at=begun + timedelta(milliseconds=number),
        )
        events.append(new_event(derived_id("evt", request_id, str(number)), payload, metadata))
    return [
        StreamAppend(stream_of(request_id), tuple(events[start : start + EVENTS_PER_APPEND]))
        for start in range(0, len(events), EVENTS_PER_APPEND)
    ]
