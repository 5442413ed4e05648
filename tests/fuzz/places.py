"""A gateway with artifacts and sessions behind it, and a hand that ends every request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.api.common.v1 import artifact_pb2
from fastvideo.artifacts.state import artifact_id_of
from fastvideo.errors import Conflict
from fastvideo.requests.events import RequestCancelled, RequestCompleted, RequestStarted
from fastvideo.requests.reading import read_request
from fastvideo.requests.state import is_terminal
from fastvideo.requests.types import RequestMetrics, RequestState
from fastvideo.rpc.api_keys import ApiToken
from fastvideo.rpc.channel import open_channel
from fastvideo_artifacts.app import running_artifacts
from fastvideo_artifacts.config import Config as ArtifactsConfig
from fastvideo_gateway.access.config import AccessConfig, Auth
from fastvideo_sessions.app import running_sessions
from tests.integration.gateway.worlds import World, gateway_config, world_of
from tests.integration.sessions.worlds import sessions_config
from tests.plugins.http import call
from tests.plugins.waiting import eventually, running

if TYPE_CHECKING:
    from fastvideo.api.artifacts.v1.artifacts_pb2_grpc import ArtifactServiceAsyncStub

_METRICS = RequestMetrics(total_seconds=1.0)
# What every request makes: the shortest file that is recognised as what it is.
_FILES = {
    "video.mp4": ("video/mp4", artifact_pb2.ARTIFACT_KIND_VIDEO, b"\0\0\0\x14ftypisom\0\0\0\0isom"),
    "image.png": ("image/png", artifact_pb2.ARTIFACT_KIND_IMAGE, b"\x89PNG\r\n\x1a\n" + bytes(16)),
}


@dataclass(frozen=True)
class Place:
    """What callers reach, and what lies behind it."""

    world: World
    artifacts: str
    sessions: str
    # An operator's; empty where none is asked for.
    key: str


async def _is_ready(world: World) -> bool:
    return (await call(world.gateway.http_address, "/health/ready")).status == 200


def _artifacts(dsn: str, folder: Path) -> ArtifactsConfig:
    return ArtifactsConfig(
        listen="127.0.0.1:0",
        service_id="artifacts-test",
        postgres_dsn=dsn,
        blobs_url=(folder / "blobs").as_uri(),
    )


@asynccontextmanager
async def place_of(
    dsn: str, folder: Path, *, hand: bool = False, keyed: bool = False
) -> AsyncIterator[Place]:
    """The services on loopback, over an empty log.

    With a hand, requests end by themselves; keyed, the gateway asks for the place's key.
    """
    key = ApiToken.new("admin").text if keyed else ""
    access = AccessConfig()
    if keyed:
        (folder / "key").write_text(key)
        access = AccessConfig(Auth.KEYS, folder / "key")
    async with AsyncExitStack() as stack:
        artifacts = await stack.enter_async_context(running_artifacts(_artifacts(dsn, folder)))
        sessions = await stack.enter_async_context(running_sessions(sessions_config(dsn)))
        config = gateway_config(dsn, artifacts=artifacts.address, sessions=sessions.address)
        world = await stack.enter_async_context(world_of(replace(config, access=access)))
        await eventually(lambda: _is_ready(world), timeout_s=30)
        if hand:
            channel = await stack.enter_async_context(open_channel(artifacts.address))
            stub = artifacts_pb2_grpc.ArtifactServiceStub(channel)
            await stack.enter_async_context(running(_end_requests(world, stub)))
        yield Place(world, artifacts.address, sessions.address, key)


async def _end_requests(world: World, artifacts: "ArtifactServiceAsyncStub") -> None:
    """Play scheduler and worker: cancel what is to be cancelled, and complete the rest."""
    watches = world.gateway.core.parts.watches
    async with aclosing(watches.touched()) as touched:
        async for request_ids in touched:
            for request_id in request_ids:
                state = await read_request(world.log, request_id)
                if state is not None and not is_terminal(state):
                    await _end(world, artifacts, state)


async def _end(world: World, artifacts: "ArtifactServiceAsyncStub", state: RequestState) -> None:
    request_id = state.spec.request_id
    try:
        if state.cancel_requested:
            await world.schedule(request_id, RequestCancelled(reason="asked for", metrics=_METRICS))
            return
        await world.schedule(request_id, RequestStarted(attempt=1))
        for name, (content_type, kind, data) in _FILES.items():
            header = artifacts_pb2.PutArtifactHeader(
                artifact_id=artifact_id_of(request_id, "write", name),
                kind=kind,
                name=name,
                content_type=content_type,
                producer=artifact_pb2.Producer(request_id=request_id, node_id="write"),
            )
            await artifacts.PutArtifact(
                iter(
                    (
                        artifacts_pb2.PutArtifactRequest(header=header),
                        artifacts_pb2.PutArtifactRequest(chunk=data),
                    )
                )
            )
        done = RequestCompleted(metrics=_METRICS)
        await world.schedule(request_id, done)
    except Conflict:
        # Something else was told of it meanwhile; the next touch tells of it again.
        await asyncio.sleep(0)
