"""The session service and a gateway in front of it, on real Postgres and NATS."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastvideo.api.common.v1 import session_pb2
from fastvideo.api.sessions.v1 import sessions_pb2, sessions_pb2_grpc
from fastvideo.bus.nats import NatsBus, NatsBusConfig
from fastvideo.events.catalog import encode_for_bus
from fastvideo.events.relay import RelayParts, run_relay
from fastvideo.rpc.channel import open_channel
from fastvideo_sessions.app import RunningSessions, running_sessions
from fastvideo_sessions.config import Config
from tests.integration.gateway.worlds import World, gateway_config, world_of
from tests.plugins.waiting import running

if TYPE_CHECKING:
    from fastvideo.api.sessions.v1.sessions_pb2_grpc import SessionServiceAsyncStub


@dataclass(frozen=True)
class SessionWorld:
    """Sessions as users reach them: on the gateway's address."""

    gateway: World
    sessions: RunningSessions
    stub: "SessionServiceAsyncStub"

    async def create(self, **fields: Any) -> session_pb2.SessionState:
        response = await self.stub.CreateSession(sessions_pb2.CreateSessionRequest(**fields))
        return response.state

    async def get(self, session_id: str) -> session_pb2.SessionState:
        request = sessions_pb2.GetSessionRequest(session_id=session_id)
        return (await self.stub.GetSession(request)).state

    async def close(self, session_id: str) -> session_pb2.SessionState:
        request = sessions_pb2.CloseSessionRequest(session_id=session_id)
        return (await self.stub.CloseSession(request)).state


def sessions_config(dsn: str, nats_url: str = "") -> Config:
    """A session service on a free port."""
    return Config(
        listen="127.0.0.1:0", service_id="sessions-test", postgres_dsn=dsn, nats_url=nats_url
    )


@asynccontextmanager
async def session_world(dsn: str, nats_url: str = "") -> AsyncIterator[SessionWorld]:
    """Both services; with NATS, a relay too."""
    async with (
        running_sessions(sessions_config(dsn, nats_url)) as sessions,
        world_of(gateway_config(dsn, sessions=sessions.address, nats_url=nats_url)) as gateway,
        open_channel(gateway.gateway.address) as channel,
    ):
        world = SessionWorld(gateway, sessions, sessions_pb2_grpc.SessionServiceStub(channel))
        if not nats_url:
            yield world
            return
        bus = NatsBus.open(NatsBusConfig(url=nats_url))
        try:
            relay = RelayParts(store=gateway.log, bus=bus, encode=encode_for_bus)
            async with running(run_relay(relay, "relay-test")):
                yield world
        finally:
            await bus.close()
