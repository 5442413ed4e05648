"""A grpc.aio server with health, reflection, typed errors, traces and a graceful stop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import grpc
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from fastvideo.errors import Unavailable
from fastvideo.rpc.channel import MESSAGE_BYTES_MAX, connection_arguments
from fastvideo.rpc.decoding import DecodingInterceptor
from fastvideo.rpc.interceptor import ErrorInterceptor
from fastvideo.rpc.tls import ServerTls
from fastvideo.telemetry.grpc_server import TracingInterceptor

CONCURRENT_RPCS_MAX: Final = 2_000
# One connection leaves room for others; what is more waits in its client.
CONNECTION_RPCS_MAX: Final = 1_500
# From a connection to the first words of HTTP/2, with those of TLS.
HANDSHAKE_MS_MAX: Final = 10_000

_SERVER_ARGUMENTS: Final = (
    # Clients may ping this often; they do so to find dead connections.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # A port that another process holds is an error, not a share of its traffic.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", CONNECTION_RPCS_MAX),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS_MAX),
)


@dataclass(frozen=True)
class Service:
    """A servicer and where it hangs: `Service.of(gateway_pb2, "GatewayService", add, servicer)`."""

    full_name: str
    servicer: object
    add_to_server: Callable[[Any, grpc.aio.Server], None]

    @classmethod
    def of(
        cls,
        file: FileDescriptor,
        name: str,
        add_to_server: Callable[[Any, grpc.aio.Server], None],
        servicer: object,
    ) -> Self:
        """The service `name` of a proto file, such as `gateway_pb2.DESCRIPTOR`."""
        return cls(file.services_by_name[name].full_name, servicer, add_to_server)


class Server:
    """Serves until stopped; as an async context it starts on entry and stops on exit.

    With `tls` it speaks nothing else. Interceptors run in the order: traces, errors, malformed
    messages, then `interceptors` as given.
    """

    def __init__(
        self,
        listen: str,
        services: Sequence[Service],
        *,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        tls: ServerTls | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        ready: bool = True,
        grace_s: float = 5.0,
    ) -> None:
        self._listen = listen
        self._services = tuple(services)
        self._interceptors = tuple(interceptors)
        self._tls = tls
        self._message_bytes_max = message_bytes_max
        self._ready = ready
        self._grace_s = grace_s
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """The port in use, also when `listen` asked for port 0."""
        return self._port

    @property
    def address(self) -> str:
        """ "host:port" with the port in use."""
        return f"{self._listen.rpartition(':')[0]}:{self._port}"

    async def start(self) -> int:
        """Bind and serve; returns the port. Unavailable when the address cannot be bound."""
        server = grpc.aio.server(
            interceptors=[
                TracingInterceptor(),
                ErrorInterceptor(),
                DecodingInterceptor(),
                *self._interceptors,
            ],
            options=[*connection_arguments(self._message_bytes_max), *_SERVER_ARGUMENTS],
            maximum_concurrent_rpcs=CONCURRENT_RPCS_MAX,
        )
        for service in self._services:
            service.add_to_server(service.servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [service.full_name for service in self._services]
        reflection.enable_server_reflection(
            [*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server
        )
        try:
            if self._tls is None:
                self._port = server.add_insecure_port(self._listen)
            else:
                self._port = server.add_secure_port(self._listen, self._tls.credentials())
        except RuntimeError as error:
            raise Unavailable(f"cannot listen on {self._listen}", subject=self._listen) from error
        await self.set_ready(self._ready)
        await server.start()
        self._server = server
        return self._port

    async def set_ready(self, ready: bool) -> None:
        """What health answers from now on, for the whole server and for each service."""
        answer = health_pb2.HealthCheckResponse
        status = answer.SERVING if ready else answer.NOT_SERVING
        for name in ("", *(service.full_name for service in self._services)):
            await self._health.set(name, status)

    async def stop(self, grace_s: float | None = None) -> None:
        """Answer health with NOT_SERVING, take no new call, and end after the running ones.

        Calls that outlast the grace are cancelled.
        """
        if self._server is None:
            return
        await self._health.enter_graceful_shutdown()
        server, self._server = self._server, None
        await server.stop(self._grace_s if grace_s is None else grace_s)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()
