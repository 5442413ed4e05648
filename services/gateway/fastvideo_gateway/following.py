"""Parts that follow the log: one that meets what it cannot read stands still, the rest goes on.

Whoever asks the log itself what is wrong with it does so through a gateway.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from fastvideo.errors import CorruptLog
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

RETRY_BROKEN_S: Final = 60.0
"""How long a part waits before it reads a broken event again."""


async def keep_following(part: str, follow: Callable[[], Awaitable[None]]) -> None:
    """Follow for ever, and stand still before a broken event; ends by cancellation."""
    while True:
        try:
            await follow()
        except* CorruptLog as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            _LOG.error("stands still before a broken event", part=part, error=str(error))
        await asyncio.sleep(RETRY_BROKEN_S)
