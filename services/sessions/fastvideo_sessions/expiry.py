"""Closes sessions that have been quiet for too long."""

import asyncio
from datetime import datetime
from typing import Final

from fastvideo.clock import Clock
from fastvideo.errors import Conflict, Unavailable
from fastvideo.sessions.commands import CheckInactivity
from fastvideo.telemetry.logging import get_logger
from fastvideo_sessions.book import SessionBook
from fastvideo_sessions.index import SessionIndex

_LOG: Final = get_logger(__name__)

CHECK_EVERY_S: Final = 2.0
SESSIONS_PER_CHECK_MAX: Final = 200


class Expiry:
    """The index says which sessions may be due; their streams decide."""

    def __init__(self, index: SessionIndex, book: SessionBook) -> None:
        self._index = index
        self._book = book

    async def close_due(self, now: datetime) -> int:
        """Close the sessions that are due at a moment; how many were."""
        due = await self._index.list_expired(now, SESSIONS_PER_CHECK_MAX)
        closed = 0
        for session_id in due:
            try:
                closed += await self._book.tell(session_id, CheckInactivity(at=now))
            except Conflict:
                continue  # It is busy, so it is not quiet; the next check sees it again.
        return closed

    async def run(self, clock: Clock) -> None:
        """Check for ever; ends by cancellation."""
        while True:
            try:
                closed = await self.close_due(clock.now())
            except Unavailable as error:
                _LOG.warning("inactive sessions wait for the database", error=error.message)
            else:
                if closed:
                    _LOG.info("closed inactive sessions", count=closed)
            await asyncio.sleep(CHECK_EVERY_S)
