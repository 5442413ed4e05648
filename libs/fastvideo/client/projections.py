"""The projections behind a gateway: how they stand, and rebuilding them."""

from collections.abc import AsyncGenerator
from typing import Final

import grpc

from fastvideo import wire
from fastvideo.api.events.v1 import projections_pb2, projections_pb2_grpc
from fastvideo.client.calls import CallPolicy, call
from fastvideo.errors import Unavailable
from fastvideo.events.projections.report import ProjectionStatus, RebuildProgress, RebuildReport
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.outgoing import with_key
from fastvideo.rpc.tls import ClientTls

_POLICY: Final = CallPolicy()


async def list_projections(
    address: str, api_key: str = "", tls: ClientTls | None = None
) -> tuple[ProjectionStatus, ...]:
    """How the projections of a gateway and of the services behind it stand."""
    async with open_channel(address, tls=tls, interceptors=with_key(api_key)) as channel:
        stub = projections_pb2_grpc.ProjectionServiceStub(channel)
        request = projections_pb2.ListProjectionsRequest()
        response = await call(stub.ListProjections, request, _POLICY)
    return tuple(wire.from_proto(ProjectionStatus, status) for status in response.projections)


async def rebuild_projection(
    address: str,
    projection: str,
    *,
    api_key: str = "",
    tls: ClientTls | None = None,
    check: bool = False,
    swap_different: bool = False,
) -> AsyncGenerator[RebuildProgress | RebuildReport, None]:
    """Rebuild a projection; tells how far it is, and at last what came of it.

    Leaving it gives the rebuild up. Raises NotFound naming the projections that there are, and
    FailedPrecondition when it is being rebuilt already.
    """
    request = projections_pb2.RebuildProjectionRequest(
        projection=projection, check=check, swap_different=swap_different
    )
    async with open_channel(address, tls=tls, interceptors=with_key(api_key)) as channel:
        stub = projections_pb2_grpc.ProjectionServiceStub(channel)
        try:
            async for response in stub.RebuildProjection(request):
                if response.WhichOneof("step") == "report":
                    yield wire.from_proto(RebuildReport, response.report)
                    return
                yield wire.from_proto(RebuildProgress, response.progress)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
    raise Unavailable("the rebuild ended without a report", subject=address)
