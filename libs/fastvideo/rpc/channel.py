"""Client channels with bounded messages, keepalive and quick reconnects."""

from collections.abc import Sequence
from dataclasses import dataclass

import grpc

from fastvideo.telemetry.grpc_client import client_interceptors

MIB = 1024 * 1024


@dataclass(frozen=True)
class ChannelOptions:
    """Limits of a channel; sizes in bytes, times in milliseconds."""

    message_bytes_max: int = 16 * MIB
    keepalive_ms: int = 10_000
    keepalive_timeout_ms: int = 5_000
    # A peer that comes back is found within a second, however long it was away.
    reconnect_initial_ms: int = 100
    reconnect_max_ms: int = 1_000
    # How long one attempt to connect may take.
    connect_ms_max: int = 5_000

    def arguments(self) -> list[tuple[str, int]]:
        """As gRPC core's channel arguments."""
        return [
            ("grpc.max_receive_message_length", self.message_bytes_max),
            ("grpc.max_send_message_length", self.message_bytes_max),
            ("grpc.keepalive_time_ms", self.keepalive_ms),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", self.reconnect_initial_ms),
            ("grpc.min_reconnect_backoff_ms", self.connect_ms_max),
            ("grpc.max_reconnect_backoff_ms", self.reconnect_max_ms),
            # Channels of one process must not share a broken connection.
            ("grpc.use_local_subchannel_pool", 1),
            # Loopback and cluster addresses never go through a proxy of the environment.
            ("grpc.enable_http_proxy", 0),
        ]


def open_channel(
    target: str,
    *,
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
    options: ChannelOptions | None = None,
) -> grpc.aio.Channel:
    """A channel to "host:port"; it connects on the first call. Close it, or use it as a context.

    It carries the current trace by itself; `interceptors` come inside of that.
    """
    return grpc.aio.insecure_channel(
        target,
        options=(options or ChannelOptions()).arguments(),
        interceptors=[*client_interceptors(), *interceptors],
    )
