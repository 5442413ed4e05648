"""Is it ready? One small question for each kind of part, asked from inside the event loop."""

import asyncio
from typing import Protocol

import grpc
from grpc_health.v1 import health_pb2

from fastvideo.local.ports import HOST

# PostgreSQL frontend/backend protocol 3.0, "StartupMessage": length, version, parameters.
_POSTGRES_PARAMETERS = b"user\0fastvideo_probe\0database\0postgres\0\0"
_POSTGRES_STARTUP = (
    (8 + len(_POSTGRES_PARAMETERS)).to_bytes(4) + (3 << 16).to_bytes(4) + _POSTGRES_PARAMETERS
)


class Probe(Protocol):
    """A question to a part."""

    async def check(self) -> str | None:
        """None when the part is ready, else why it is not. May be cancelled when it takes long."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class Exits:
    """For a step that runs once: it is ready when its process has ended well."""

    async def check(self) -> str | None:
        return "still running"

    async def close(self) -> None:
        """Holds nothing."""


class PostgresAnswers:
    """Postgres asks for a password, as it does once it takes sessions."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def check(self) -> str | None:
        answer = await _ask(self._port, _POSTGRES_STARTUP, 1)
        # "R" asks to authenticate; an error ("E") here means starting up or shutting down.
        return None if answer == b"R" else "Postgres does not take sessions yet"

    async def close(self) -> None:
        """Holds nothing."""


class NatsAnswers:
    """NATS introduces itself and has JetStream."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def check(self) -> str | None:
        answer = await _ask(self._port, b"", 4096)
        if not answer.startswith(b"INFO "):
            return "NATS does not introduce itself yet"
        return None if b'"jetstream":true' in answer else "JetStream is not up yet"

    async def close(self) -> None:
        """Holds nothing."""


class RedisAnswers:
    """Redis answers PING, or asks for the password first."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def check(self) -> str | None:
        answer = await _ask(self._port, b"PING\r\n", 64)
        ready = answer.startswith((b"+PONG", b"-NOAUTH"))
        return None if ready else "Redis does not answer yet"

    async def close(self) -> None:
        """Holds nothing."""


class GrpcHealth:
    """The standard health service says SERVING for the server as a whole."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._channel: grpc.aio.Channel | None = None

    async def check(self) -> str | None:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(
                self._address,
                options=[
                    ("grpc.enable_http_proxy", 0),
                    ("grpc.use_local_subchannel_pool", 1),
                    ("grpc.initial_reconnect_backoff_ms", 50),
                    ("grpc.min_reconnect_backoff_ms", 50),
                    ("grpc.max_reconnect_backoff_ms", 500),
                ],
            )
        ask = self._channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            answer = await ask(health_pb2.HealthCheckRequest())
        except grpc.aio.AioRpcError as error:
            return f"health: {error.code().name}"
        status = answer.status
        if status == health_pb2.HealthCheckResponse.SERVING:
            return None
        return f"health: {health_pb2.HealthCheckResponse.ServingStatus.Name(status)}"

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None


async def _ask(port: int, question: bytes, answer_bytes_max: int) -> bytes:
    """Send on a new connection, read once; empty when nobody is there."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return b""
    try:
        writer.write(question)
        return await reader.read(answer_bytes_max)
    except OSError:
        return b""
    finally:
        writer.close()
