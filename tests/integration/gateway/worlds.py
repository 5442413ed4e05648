"""A gateway on real Postgres, reached over gRPC; a hand that plays the scheduler."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fastvideo.api.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from fastvideo.events.catalog import new_event
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.ids import new_id
from fastvideo.requests.state import stream_of
from fastvideo.rpc.channel import open_channel
from fastvideo_gateway.app import RunningGateway, running_gateway
from fastvideo_gateway.config import Config

if TYPE_CHECKING:
    from fastvideo.api.gateway.v1.gateway_pb2_grpc import GatewayServiceAsyncStub

NOBODY = "127.0.0.1:1"
MODEL = "moving-digits"


@dataclass(frozen=True)
class World:
    """A running gateway, a client of it, and the log behind it."""

    gateway: RunningGateway
    stub: "GatewayServiceAsyncStub"
    log: PostgresEventStore

    async def append(self, stream_id: str, *payloads: EventPayload, tenant_id: str = "") -> None:
        """Append as another service would, past the gateway."""
        metadata = EventMetadata(tenant_id=tenant_id, occurred_at=datetime.now(UTC))
        events = tuple(new_event(new_id("evt", 0), payload, metadata) for payload in payloads)
        await self.log.append(AppendCommand(streams=(StreamAppend(stream_id, events),)))

    async def schedule(self, request_id: str, *payloads: EventPayload) -> None:
        """Append to a request's stream as the scheduler would."""
        await self.append(stream_of(request_id), *payloads)

    async def submit(self, prompt: str = "a red three", **fields: Any) -> str:
        """Submit a request; its id."""
        response = await self.stub.SubmitRequest(submit_message(prompt, **fields))
        return response.state.spec.request_id

    async def size(self) -> int:
        """How many events the log holds."""
        return sum((await self.log.heads()).values())


def gateway_config(
    dsn: str, *, artifacts: str = NOBODY, sessions: str = NOBODY, nats_url: str = ""
) -> Config:
    """A gateway on free ports; nobody answers where its other services are not given."""
    return Config(
        listen="127.0.0.1:0",
        http_listen="127.0.0.1:0",
        service_id="gateway-test",
        postgres_dsn=dsn,
        artifacts_address=artifacts,
        sessions_address=sessions,
        nats_url=nats_url,
        models=(MODEL,),
    )


@asynccontextmanager
async def world_of(config: Config) -> AsyncIterator[World]:
    """A gateway of that configuration."""
    log = await PostgresEventStore.open(config.postgres_dsn)
    try:
        async with (
            running_gateway(config) as gateway,
            open_channel(gateway.address) as channel,
        ):
            yield World(gateway, gateway_pb2_grpc.GatewayServiceStub(channel), log)
    finally:
        await log.close()


def submit_message(
    prompt: str | None = "a red three", **fields: Any
) -> gateway_pb2.SubmitRequestRequest:
    """A submit to the embedded model."""
    message = gateway_pb2.SubmitRequestRequest(**{"model_id": MODEL, **fields})
    if prompt is not None:
        text = message.inputs.add().text
        text.role, text.text = "prompt", prompt
    return message
