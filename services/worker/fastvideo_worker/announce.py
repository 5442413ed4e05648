"""Tells the schedulers where this worker can be dialled, until one has attached and after."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final

import grpc

from fastvideo.api.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.tls import ClientTls
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

_FAST_S: Final = 0.5
_SLOW_S: Final = 5.0
_CALL_S_MAX: Final = 2.0


async def announce(
    addresses: Sequence[str],
    request: scheduler_pb2.AnnounceWorkerRequest,
    is_attached: Callable[[], bool],
    tls: ClientTls | None = None,
) -> None:
    """Announce to all schedulers, often while none is attached; runs until it is cancelled."""
    if not addresses:
        return
    async with AsyncExitStack() as stack:
        stubs = [
            scheduler_pb2_grpc.SchedulerServiceStub(
                await stack.enter_async_context(open_channel(address, tls=tls))
            )
            for address in addresses
        ]
        reached: set[str] = set()
        while True:
            await asyncio.gather(
                *(
                    _announce_once(address, stub, request, reached)
                    for address, stub in zip(addresses, stubs, strict=True)
                )
            )
            await _pause(is_attached)


async def _announce_once(
    address: str,
    stub: "scheduler_pb2_grpc.SchedulerServiceAsyncStub",
    request: scheduler_pb2.AnnounceWorkerRequest,
    reached: set[str],
) -> None:
    try:
        await stub.AnnounceWorker(request, timeout=_CALL_S_MAX)
    except grpc.RpcError as error:
        # Schedulers start together with workers, so silence is news only after an answer.
        if address in reached:
            _LOG.warning("scheduler does not answer", address=address, error=str(error)[:200])
            reached.discard(address)
    else:
        if address not in reached:
            _LOG.info("announced", address=address)
            reached.add(address)


async def _pause(is_attached: Callable[[], bool]) -> None:
    """Half a second, or longer while a scheduler is attached."""
    waited_s = 0.0
    while waited_s < _FAST_S or (is_attached() and waited_s < _SLOW_S):
        await asyncio.sleep(_FAST_S)
        waited_s += _FAST_S
