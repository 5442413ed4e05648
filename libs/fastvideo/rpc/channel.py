"""Client channels with bounded messages, keepalive and quick reconnects."""

from collections.abc import Sequence
from typing import Final

import grpc

from fastvideo.rpc.tls import ClientTls
from fastvideo.telemetry.grpc_client import client_interceptors

MIB: Final = 1024 * 1024
MESSAGE_BYTES_MAX: Final = 16 * MIB

_CHANNEL_ARGUMENTS: Final = (
    # A peer that comes back is found within a second, however long it was away; one attempt to
    # connect may take five.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Channels of one process must not share a broken connection.
    ("grpc.use_local_subchannel_pool", 1),
    # Loopback and cluster addresses never go through a proxy of the environment.
    ("grpc.enable_http_proxy", 0),
)


def connection_arguments(message_bytes_max: int = MESSAGE_BYTES_MAX) -> list[tuple[str, int]]:
    """gRPC core's arguments for both ends: bounded messages, and dead peers found in 15 s."""
    return [
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", message_bytes_max),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def open_channel(
    target: str,
    *,
    tls: ClientTls | None = None,
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
) -> grpc.aio.Channel:
    """A channel to "host:port"; it connects on the first call. Close it, or use it as a context.

    It carries the current trace by itself; `interceptors` come inside of that. Without `tls` it
    is in the clear.
    """
    options: list[tuple[str, int | str]] = [*connection_arguments(), *_CHANNEL_ARGUMENTS]
    inner = [*client_interceptors(), *interceptors]
    if tls is None:
        return grpc.aio.insecure_channel(target, options=options, interceptors=inner)
    if tls.name:
        options.append(("grpc.ssl_target_name_override", tls.name))
    return grpc.aio.secure_channel(target, tls.credentials(), options=options, interceptors=inner)


def open_blocking_channel(target: str, *, tls: ClientTls | None = None) -> grpc.Channel:
    """As `open_channel`, for threads without an event loop."""
    options: list[tuple[str, int | str]] = [*connection_arguments(), *_CHANNEL_ARGUMENTS]
    if tls is None:
        return grpc.insecure_channel(target, options=options)
    if tls.name:
        options.append(("grpc.ssl_target_name_override", tls.name))
    return grpc.secure_channel(target, tls.credentials(), options=options)
