"""Requests that live as long as somebody waits for them here.

Whoever asks and waits in one call, for an answer or for a stream, holds its request; when the last
of those who hold it has gone, it is cancelled. Who only watches a request that was made elsewhere,
or names it again by its idempotency key, holds nothing: no watcher ends another's work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from fastvideo.errors import FastVideoError
from fastvideo.rpc.identity import Caller, calling
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

REASON: Final = "its caller went away"

Cancel = Callable[[str, str], Awaitable[None]]
"""Cancels a request of the caller's, for a reason."""


class Holds:
    """Who holds which request."""

    def __init__(self, cancel: Cancel) -> None:
        self._cancel = cancel
        # Requests that were made by those who wait, and how many still do.
        self._holders: dict[str, int] = {}
        # A task that nobody refers to may vanish before it has run.
        self._cancelling: set[asyncio.Task[None]] = set()

    def hold(self, request_id: str, *, made_before: bool) -> bool:
        """Wait for a request; whether it is held: not where somebody else made it."""
        if made_before and request_id not in self._holders:
            return False
        self._holders[request_id] = self._holders.get(request_id, 0) + 1
        return True

    def release(self, request_ids: Iterable[str], caller: Caller, *, ended: bool) -> None:
        """The caller waits no longer for requests that it held; those of nobody are cancelled.

        It does not wait for that, since whoever goes away is often being cancelled itself.
        """
        left = [request_id for request_id in request_ids if self._leave(request_id)]
        if left and not ended:
            task = asyncio.create_task(self._end(left, caller), name="caller-gone")
            self._cancelling.add(task)
            task.add_done_callback(self._cancelling.discard)

    def _leave(self, request_id: str) -> bool:
        """Whether that was the last who held it."""
        holders = self._holders.get(request_id, 0) - 1
        if holders > 0:
            self._holders[request_id] = holders
            return False
        self._holders.pop(request_id, None)
        return True

    async def _end(self, request_ids: Iterable[str], caller: Caller) -> None:
        with calling(caller):
            for request_id in request_ids:
                try:
                    await self._cancel(request_id, REASON)
                except FastVideoError as error:
                    _LOG.error(
                        "a request whose caller went away is not cancelled",
                        request_id=request_id,
                        error=error.message,
                    )
