"""Work that one process at a time does: under a lease, renewed while the work goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from fastvideo.errors import Fenced, Unavailable
from fastvideo.events.records import Lease
from fastvideo.events.store import Leases
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)


async def lead(
    store: Leases,
    name: str,
    holder: str,
    work: Callable[[Lease], Awaitable[None]],
    *,
    ttl_s: float = 5.0,
) -> None:
    """Do `work` whenever this process holds the lease; endless, ends by cancellation.

    The work is cancelled when the lease is lost, and begins again, in a new epoch, when it is
    won. When the work ends or raises Fenced or Unavailable it begins again too; any other error
    ends the leadership and is raised. The lease is given back on the way out.
    """
    while True:
        lease = await _acquire(store, name, holder, ttl_s)
        _LOG.info("lease acquired", lease=name, epoch=lease.epoch)
        try:
            await _work_while_held(store, lease, work, ttl_s)
        except (Fenced, Unavailable) as error:
            _LOG.warning("lease work interrupted", lease=name, error=str(error))
        finally:
            await _release(store, lease)
        await asyncio.sleep(min(0.1, ttl_s / 10))


async def _acquire(store: Leases, name: str, holder: str, ttl_s: float) -> Lease:
    waiting = False
    while True:
        try:
            lease = await store.acquire_lease(name, holder, ttl_s)
        except Unavailable as error:
            if not waiting:
                _LOG.warning("lease not acquired", lease=name, error=str(error))
            waiting = True
            lease = None
        if lease is not None:
            return lease
        await asyncio.sleep(min(0.25, ttl_s / 4))


async def _work_while_held(
    store: Leases, lease: Lease, work: Callable[[Lease], Awaitable[None]], ttl_s: float
) -> None:
    working = asyncio.ensure_future(work(lease))
    renewing = asyncio.create_task(_renew(store, lease, ttl_s))
    try:
        await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _stop(working)
        await _stop(renewing)
    for task in (working, renewing):
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _stop(task: asyncio.Future[None]) -> None:
    """Cancel until it ends: `asyncio.wait_for` of Python 3.11, which the NATS client uses,
    swallows a cancellation that comes in the same moment as its result."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=0.5)


async def _renew(store: Leases, lease: Lease, ttl_s: float) -> None:
    """Renew for ever. Raises Fenced when the lease is lost or could not be renewed in time."""
    loop = asyncio.get_running_loop()
    valid_until = loop.time() + ttl_s
    while True:
        await asyncio.sleep(ttl_s / 3)
        asked_at = loop.time()
        try:
            await store.renew_lease(lease, ttl_s)
        except Unavailable as error:
            if loop.time() > valid_until:
                raise Fenced(
                    f"lease {lease.name} could not be renewed in time", subject=lease.name
                ) from error
        else:
            valid_until = asked_at + ttl_s


async def _release(store: Leases, lease: Lease) -> None:
    try:
        await store.release_lease(lease)
    except Unavailable as error:
        _LOG.info("lease left to expire", lease=lease.name, error=str(error))
