"""Bytes that no record ever named, found by listing the store.

An upload whose request ended meanwhile, or whose process died between storing its bytes and telling
of them, leaves bytes that the log does not know. They are old enough once whoever stored them would
have told of them long ago. This says which may go; the sweeper removes them as it removes all
others, so that a record that comes in the same moment keeps them.
"""

from collections.abc import AsyncGenerator
from datetime import datetime, timedelta

from fastvideo.blobs import BlobStore
from fastvideo.clock import Clock
from fastvideo.errors import FastVideoError, Unavailable
from fastvideo.events.store import EventLog
from fastvideo_artifacts.book import SweepBook

LOOKED_UP_MAX = 500


class StoreAway(FastVideoError):
    """The store of bytes did not answer."""


class Strays:
    """Lists the store against the book. `kept` is how long bytes without a record are left."""

    def __init__(
        self, log: EventLog, blobs: BlobStore, book: SweepBook, clock: Clock, kept: timedelta
    ) -> None:
        self._log = log
        self._blobs = blobs
        self._book = book
        self._clock = clock
        self._kept = kept

    async def pages(self) -> AsyncGenerator[tuple[str, ...], None]:
        """Digests that no artifact has. Raises StoreAway when the store does not answer."""
        began = await self._log_began()
        if began is None:
            return
        before = self._clock.now() - self._kept
        page: list[str] = []
        blobs = self._blobs.list()
        while True:
            try:
                blob = await anext(blobs, None)
            except Unavailable as error:
                raise StoreAway(error.message, reason="STORE_AWAY") from error
            # What is older than the log is somebody else's.
            if blob and blob.stored_at and began <= blob.stored_at < before:
                page.append(blob.digest)
            if page and (blob is None or len(page) >= LOOKED_UP_MAX):
                if strays := await self._book.strays(page):
                    yield strays
                page.clear()
            if blob is None:
                return

    async def _log_began(self) -> datetime | None:
        """When the log's first event was recorded."""
        firsts = [
            stored.recorded_at
            for partition in range(self._log.partition_count)
            for stored in await self._log.read_partition(partition, 0, 1)
        ]
        # Stores may tell times in whole seconds.
        return min(firsts).replace(microsecond=0) if firsts else None
