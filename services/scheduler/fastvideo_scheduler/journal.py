"""What the scheduler writes: each input with its decisions, and what requests' streams say.

One command holds an input that is not in the log yet, the SchedulerDecided, and the events of
the requests' streams, so that none is there without the others. Commands are committed in the
order of the decisions, in groups, behind the scheduler's back. That is early enough for
terminal events too: users learn of them from the log and from nowhere else.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from fastvideo.clock import milliseconds
from fastvideo.events.appender import Appender
from fastvideo.events.catalog import new_event
from fastvideo.events.records import AppendCommand, Fence, NewEvent, StreamAppend
from fastvideo.events.types import EventMetadata
from fastvideo.ids import new_id
from fastvideo.requests.state import stream_of
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.effects import request_event
from fastvideo.scheduling.events import (
    BatchExecuted,
    Decision,
    LeaderElected,
    LoopFailed,
    LoopPrepared,
    SchedulerDecided,
    WorkerAttached,
    WorkerLost,
)

WorkerReport = WorkerAttached | WorkerLost | LoopPrepared | LoopFailed | BatchExecuted
"""An input that is not in the log until the scheduler writes it."""

SpecOf = Callable[[str], RequestSpec | None]
TraceOf = Callable[[str], str]


def shard_stream(shard: str) -> str:
    """The stream of a shard's inputs and decisions; also the name of its lease."""
    return f"scheduler-{shard}"


class Journal:
    """Writes one leader's term."""

    def __init__(
        self, appender: Appender, shard: str, fence: Fence, spec_of: SpecOf, trace_of: TraceOf
    ) -> None:
        self._appender = appender
        self._stream = shard_stream(shard)
        self._fence = fence
        self._spec_of = spec_of
        self._trace_of = trace_of

    async def elected(self, scheduler_id: str, now: datetime) -> None:
        """Write that the term begins, and wait until that is committed. Fenced when it is over."""
        event = LeaderElected(scheduler_id=scheduler_id, epoch=self._fence.epoch)
        new = new_event(_event_id(now), event, EventMetadata(occurred_at=now))
        await self._appender.append(
            AppendCommand(streams=(StreamAppend(self._stream, (new,)),), fence=self._fence)
        )

    async def decided(
        self,
        decisions: Sequence[Decision],
        now: datetime,
        *,
        report: WorkerReport | None = None,
        event_id: str = "",
    ) -> None:
        """Queue an input and its decisions.

        `report` is an input that the log does not have yet, `event_id` names one that it has.
        Waits while the queue is full. Raises Fenced once the term is over.
        """
        if report is None and not decisions:
            return
        shard_events = []
        if report is not None:
            event_id = _event_id(now)
            shard_events.append(new_event(event_id, report, _report_metadata(report, now)))
        decided = SchedulerDecided(
            input_event_id=event_id,
            at=now,
            decisions=tuple(decisions),
            epoch=self._fence.epoch,
        )
        metadata = EventMetadata(causation_id=event_id, occurred_at=now)
        shard_events.append(new_event(_event_id(now), decided, metadata))
        streams = [StreamAppend(self._stream, tuple(shard_events))]
        for request_id, events in self._request_events(decisions, metadata, now).items():
            streams.append(StreamAppend(stream_of(request_id), tuple(events)))
        await self._appender.enqueue(AppendCommand(streams=tuple(streams), fence=self._fence))

    def _request_events(
        self, decisions: Sequence[Decision], metadata: EventMetadata, now: datetime
    ) -> dict[str, list[NewEvent]]:
        events: dict[str, list[NewEvent]] = {}
        for decision in decisions:
            seen = request_event(decision)
            if seen is not None:
                request_id, payload = seen
                about = self._about(request_id, metadata)
                events.setdefault(request_id, []).append(new_event(_event_id(now), payload, about))
        return events

    def _about(self, request_id: str, metadata: EventMetadata) -> EventMetadata:
        spec = self._spec_of(request_id)
        if spec is None:
            return replace(metadata, request_id=request_id)
        return replace(
            metadata,
            tenant_id=spec.tenant_id,
            request_id=request_id,
            session_id=spec.session_id,
            program_id=spec.program_id,
            model_id=spec.model_id,
            traceparent=self._trace_of(request_id),
        )


def _report_metadata(report: WorkerReport, now: datetime) -> EventMetadata:
    metadata = EventMetadata(worker_id=report.worker_id, occurred_at=now)
    if isinstance(report, LoopPrepared):
        loop = report.plan.loop
    elif isinstance(report, LoopFailed):
        loop = report.loop
    else:
        return metadata
    return replace(metadata, request_id=loop.request_id, loop_id=loop.node_id)


def _event_id(now: datetime) -> str:
    return new_id("evt", milliseconds(now))
