"""Whether the gateway can take requests: looked up every second, and kept for whoever asks."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fastvideo.errors import Unavailable
from fastvideo.events.store import EventLog
from fastvideo.telemetry.logging import get_logger
from fastvideo_gateway.access.directory import TenantDirectory
from fastvideo_gateway.models import ModelDirectory

_LOG: Final = get_logger(__name__)

CHECK_EVERY_S: Final = 1.0
CHECK_TIMEOUT_S: Final = 3.0

OnReadiness = Callable[[bool], Awaitable[None]]


@dataclass(slots=True)
class Readiness:
    """What the last check found."""

    ready: bool = False
    # Model id to whether a worker serves it.
    models: Mapping[str, bool] = field(default_factory=dict)
    # Whose counters decide about quotas now: "shared" or "local".
    quotas: Callable[[], str] = lambda: "local"


async def keep_checking(
    readiness: Readiness,
    log: EventLog,
    models: ModelDirectory,
    tenants: TenantDirectory,
    on_change: OnReadiness,
) -> None:
    """Check the log and the models for ever, and tell of each change; ends by cancellation."""
    while True:
        # Without keys nobody could be let in.
        ready = await _check(readiness, log, models) and tenants.loaded
        if ready != readiness.ready:
            _LOG.info("readiness changed", ready=ready)
            readiness.ready = ready
            await on_change(ready)
        await asyncio.sleep(CHECK_EVERY_S)


async def _check(readiness: Readiness, log: EventLog, models: ModelDirectory) -> bool:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await log.heads()
            statuses = await models.list()
    except (Unavailable, TimeoutError) as error:
        _LOG.warning("the event log does not answer", error=str(error))
        return False
    readiness.models = {status.entry.card.model_id: status.ready for status in statuses}
    return True
