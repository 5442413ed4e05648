"""EventLogService: the gRPC face of the event log."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from fastvideo import wire
from fastvideo.api.events.v1 import log_pb2, log_pb2_grpc
from fastvideo.events.reading.entries import entry_message
from fastvideo.events.reading.filters import EventFilter
from fastvideo.events.reading.stats import LogStats
from fastvideo.events.reading.verifying import VerifyProgress
from fastvideo.rpc.names import check_name, require_name
from fastvideo.rpc.unknown_fields import refuse_unknown_fields
from fastvideo_gateway.behaviors_service import list_behaviors
from fastvideo_gateway.event_log_parts import EventLogParts


class EventLogService(log_pb2_grpc.EventLogServiceServicer):
    """Messages in, messages out; typed errors become statuses in the server's interceptor."""

    def __init__(self, parts: EventLogParts) -> None:
        self._parts = parts

    async def ReadStream(
        self, request: log_pb2.ReadStreamRequest, context: object
    ) -> log_pb2.ReadStreamResponse:
        refuse_unknown_fields(request)
        require_name("stream_id", request.stream_id, "the id of a stream, such as request-<id>")
        page = await self._parts.reader.read_stream(
            request.stream_id, request.after_version, request.page_size
        )
        return log_pb2.ReadStreamResponse(
            entries=map(entry_message, page.entries), stream_version=page.stream_version
        )

    async def ReadLog(
        self, request: log_pb2.ReadLogRequest, context: object
    ) -> log_pb2.ReadLogResponse:
        refuse_unknown_fields(request)
        page = await self._parts.reader.read_log(
            _filter(request.filter),
            after=_positions(request.after),
            page_size=request.page_size,
            newest_first=request.newest_first,
        )
        return log_pb2.ReadLogResponse(
            entries=map(entry_message, page.entries),
            next_after=page.next_after,
            complete=page.complete,
        )

    async def SubscribeEvents(
        self, request: log_pb2.SubscribeEventsRequest, context: object
    ) -> AsyncIterator[log_pb2.SubscribeEventsResponse]:
        refuse_unknown_fields(request)
        events = self._parts.follower.follow(
            _filter(request.filter), after=_positions(request.after), from_end=request.from_end
        )
        async with aclosing(events):
            async for told in events:
                entry = None if told.entry is None else entry_message(told.entry)
                yield log_pb2.SubscribeEventsResponse(entry=entry, position=told.position)

    async def GetLogStats(
        self, request: log_pb2.GetLogStatsRequest, context: object
    ) -> log_pb2.GetLogStatsResponse:
        refuse_unknown_fields(request)
        return _stats(await self._parts.stats())

    async def VerifyLog(
        self, request: log_pb2.VerifyLogRequest, context: object
    ) -> AsyncIterator[log_pb2.VerifyLogResponse]:
        refuse_unknown_fields(request)
        checking = self._parts.verify(_positions(request.after))
        async with aclosing(checking):
            async for progress in checking:
                yield _progress(progress)

    async def ListBehaviors(
        self, request: log_pb2.ListBehaviorsRequest, context: object
    ) -> log_pb2.ListBehaviorsResponse:
        refuse_unknown_fields(request)
        return await list_behaviors(self._parts.behaviors, request)


def _stats(stats: LogStats) -> log_pb2.GetLogStatsResponse:
    message = log_pb2.GetLogStatsResponse(
        heads=stats.heads,
        log_epoch=stats.log_epoch,
        events=stats.events,
        streams=stats.streams,
        bytes=stats.bytes,
        types=map(wire.to_proto, stats.types),
        projection_lag=stats.projection_lag,
        quarantined=stats.quarantined,
        archived=stats.archived,
    )
    if stats.first_recorded_at is not None:
        message.first_recorded_at.FromDatetime(stats.first_recorded_at)
    if stats.last_recorded_at is not None:
        message.last_recorded_at.FromDatetime(stats.last_recorded_at)
    return message


def _progress(progress: VerifyProgress) -> log_pb2.VerifyLogResponse:
    return log_pb2.VerifyLogResponse(
        events_checked=progress.events_checked,
        events_total=progress.events_total,
        faults=map(wire.to_proto, progress.faults),
        complete=progress.complete,
        seconds=progress.seconds,
    )


def _positions(message: Any) -> Mapping[int, int]:
    return dict(message)


def _filter(message: log_pb2.EventFilter) -> EventFilter:
    for field in (
        "request_ids",
        "session_ids",
        "model_ids",
        "worker_ids",
        "types",
        "tenant_ids",
        "stream_ids",
    ):
        for place, value in enumerate(getattr(message, field)):
            check_name(f"filter.{field}[{place}]", value)
    return wire.from_proto(EventFilter, message)
