"""ProjectionService: the projections of a service, and those of the services behind it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from fastvideo import wire
from fastvideo.api.events.v1 import projections_pb2, projections_pb2_grpc
from fastvideo.errors import NotFound
from fastvideo.events.projections.postgres import PostgresProjection
from fastvideo.events.projections.rebuild import RebuildOptions, rebuild
from fastvideo.events.projections.report import ProjectionStatus, RebuildReport
from fastvideo.events.store import EventLog
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.server import Service
from fastvideo.rpc.unknown_fields import refuse_unknown_fields

if TYPE_CHECKING:
    from fastvideo.api.events.v1.projections_pb2_grpc import ProjectionServiceAsyncStub

# Listing the projections of a service behind this one.
LIST_TIMEOUT_S = 10.0

Context = grpc.aio.ServicerContext[Any, Any]
Response = projections_pb2.RebuildProjectionResponse


@dataclass(frozen=True, slots=True)
class KeptProjections:
    """The projections that a service keeps open, and where their rows and their log are."""

    dsn: str = field(repr=False)
    log: EventLog
    projections: tuple[PostgresProjection, ...]


class ProjectionServicer(projections_pb2_grpc.ProjectionServiceServicer):
    """Rebuilds what the service keeps, and hands on what a service behind it keeps."""

    def __init__(
        self, kept: KeptProjections, behind: "Sequence[ProjectionServiceAsyncStub]" = ()
    ) -> None:
        self._kept = kept
        self._behind = tuple(behind)

    def service(self) -> Service:
        """What a server serves."""
        return Service.of(
            projections_pb2.DESCRIPTOR,
            "ProjectionService",
            projections_pb2_grpc.add_ProjectionServiceServicer_to_server,
            self,
        )

    async def ListProjections(
        self, request: projections_pb2.ListProjectionsRequest, context: Context
    ) -> projections_pb2.ListProjectionsResponse:
        refuse_unknown_fields(request)
        response = projections_pb2.ListProjectionsResponse()
        heads = await self._kept.log.heads()
        for projection in self._kept.projections:
            status = await _status(projection, heads)
            response.projections.append(wire.to_proto(status))
        for stub in self._behind:
            response.projections.extend(await _listed(stub))
        return response

    async def RebuildProjection(
        self, request: projections_pb2.RebuildProjectionRequest, context: Context
    ) -> AsyncGenerator[Response, None]:
        refuse_unknown_fields(request)
        kept = {type(known).layout.schema: type(known) for known in self._kept.projections}
        projection = kept.get(request.projection)
        steps = (
            self._hand_on(request, tuple(kept), context.time_remaining())
            if projection is None
            else self._rebuild(projection, request)
        )
        async with aclosing(steps):
            async for response in steps:
                yield response

    async def _rebuild(
        self,
        projection: type[PostgresProjection],
        request: projections_pb2.RebuildProjectionRequest,
    ) -> AsyncGenerator[Response, None]:
        options = RebuildOptions(check=request.check, swap_different=request.swap_different)
        steps = rebuild(self._kept.dsn, self._kept.log, projection, options)
        async with aclosing(steps):
            async for step in steps:
                message = wire.to_proto(step)
                if isinstance(step, RebuildReport):
                    yield Response(report=message)
                else:
                    yield Response(progress=message)

    async def _hand_on(
        self,
        request: projections_pb2.RebuildProjectionRequest,
        kept: Sequence[str],
        timeout_s: float | None,
    ) -> AsyncGenerator[Response, None]:
        known = list(kept)
        for stub in self._behind:
            names = [status.name for status in await _listed(stub)]
            known += names
            if request.projection in names:
                try:
                    async for response in stub.RebuildProjection(request, timeout=timeout_s):
                        yield response
                except grpc.aio.AioRpcError as error:
                    raise from_rpc_error(error) from error
                return
        raise NotFound(
            f"there is no projection {request.projection!r}; there are {', '.join(known)}",
            reason="PROJECTION_UNKNOWN",
            subject=request.projection,
        )


async def _status(projection: PostgresProjection, heads: Mapping[int, int]) -> ProjectionStatus:
    positions = await projection.positions()
    return ProjectionStatus(
        name=projection.layout.schema,
        layout_version=projection.layout.version,
        positions=positions,
        events_behind=sum(
            max(0, head - positions.get(partition, 0)) for partition, head in heads.items()
        ),
    )


async def _listed(
    stub: "ProjectionServiceAsyncStub",
) -> "Sequence[projections_pb2.ProjectionStatus]":
    try:
        request = projections_pb2.ListProjectionsRequest()
        return (await stub.ListProjections(request, timeout=LIST_TIMEOUT_S)).projections
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
