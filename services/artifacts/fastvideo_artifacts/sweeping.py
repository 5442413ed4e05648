"""Sweep: tell the log what has gone, then remove the bytes that no record has any more.

One process at a time, under a lease that its appends carry. Every step is looked up in the log and
may be done again: whoever is killed between two of them leaves what the next one goes on with.
Nobody waits for it: what has expired is refused from that moment, swept or not.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from fastvideo.artifacts.events import BlobRemovalDecided, BlobRemoved
from fastvideo.artifacts.removal import stream_of as blob_stream_of
from fastvideo.blobs import BlobStore
from fastvideo.clock import Clock, milliseconds
from fastvideo.errors import Conflict, FastVideoError, Fenced, Unavailable
from fastvideo.events.catalog import new_event
from fastvideo.events.leadership import lead
from fastvideo.events.metadata import request_metadata
from fastvideo.events.projections.projector import Projector
from fastvideo.events.records import AppendCommand, Lease, StreamAppend
from fastvideo.events.store import EventStore
from fastvideo.events.types import EventMetadata
from fastvideo.ids import new_id
from fastvideo.requests.events import RequestExpired
from fastvideo.requests.reading import read_request
from fastvideo.requests.state import stream_of as request_stream_of
from fastvideo.telemetry.logging import get_logger
from fastvideo.telemetry.tracing import current_traceparent
from fastvideo.version import program_version
from fastvideo_artifacts.blob_uses import BlobUses, KnownBlob
from fastvideo_artifacts.book import SweepBook
from fastvideo_artifacts.history import ArtifactHistory

_LOG: Final = get_logger(__name__)

LEASE: Final = "artifact-sweeper"
LEASE_TTL_S: Final = 5.0
AT_ONCE_MAX: Final = 200
"""What is taken up at a time; a sweep goes on until nothing is found."""
REACHED_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepParts:
    """What a sweeper works with."""

    store: EventStore
    history: ArtifactHistory
    uses: BlobUses
    book: SweepBook
    projector: Projector
    blobs: BlobStore
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep did."""

    expired: int = 0
    given_up: int = 0
    removed: int = 0

    def __bool__(self) -> bool:
        return bool(self.expired or self.given_up or self.removed)


class Sweeper:
    """One holder of the lease."""

    def __init__(self, parts: SweepParts, lease: Lease) -> None:
        self._parts = parts
        self._lease = lease

    async def run(self, every_s: float) -> None:
        """Sweep again and again; ends by cancellation, by Fenced when the lease is lost."""
        while True:
            swept = await self.sweep()
            if swept:
                _LOG.info(
                    "artifacts swept",
                    expired=swept.expired,
                    given_up=swept.given_up,
                    removed=swept.removed,
                )
            await asyncio.sleep(every_s)

    async def sweep(self) -> Swept:
        """Everything that is due now.

        Raises Unavailable when the log does not answer, or the book does not follow it.
        """
        expired = given_up = removed = 0
        while True:
            await self._reached()
            found = Swept(expired=await self._expire(), given_up=await self._give_up())
            await self._reached()
            removals = await self._remove()
            expired += found.expired
            given_up += found.given_up
            removed += removals
            # What could not be done now is found again at the next sweep.
            if not found and not removals:
                return Swept(expired=expired, given_up=given_up, removed=removed)

    async def _reached(self) -> None:
        """Wait until the book holds what is in the log now."""
        heads = await self._parts.store.heads()
        try:
            async with asyncio.timeout(REACHED_S_MAX):
                await self._parts.projector.reached(heads)
        except TimeoutError as error:
            raise Unavailable("the sweeper's book is behind the log") from error

    async def _expire(self) -> int:
        """Tell of lifetimes that have passed."""
        expired = 0
        for request_id in await self._parts.book.to_expire(self._parts.clock.now(), AT_ONCE_MAX):
            with _apart("expiry not told", request_id):
                expired += await self._tell_expired(request_id)
        return expired

    async def _tell_expired(self, request_id: str) -> bool:
        now = self._parts.clock.now()
        state = await read_request(self._parts.store, request_id)
        if state is None or state.expired_at or not state.expires_at or now < state.expires_at:
            return False
        metadata = request_metadata(state.spec, now, current_traceparent())
        payload = RequestExpired(expires_at=state.expires_at)
        event = new_event(new_id("evt", milliseconds(now)), payload, metadata)
        append = StreamAppend(request_stream_of(request_id), (event,), state.last_sequence)
        return await self._append(append)

    async def _give_up(self) -> int:
        """Tell of the artifacts whose bytes go."""
        given_up = 0
        for one in await self._parts.book.due(self._parts.clock.now(), AT_ONCE_MAX):
            with _apart("artifact not given up", one.artifact_id):
                await self._parts.history.delete(one.artifact_id, one.reason, self._lease.fence)
                given_up += 1
        return given_up

    async def _remove(self) -> int:
        """Remove the bytes of digests that no record has."""
        parts = self._parts
        known: dict[str, KnownBlob] = {}
        for digest in await parts.book.unused(AT_ONCE_MAX):
            with _apart("bytes not removed", digest):
                known[digest] = await parts.uses.read(digest)
        # A record that is completed from here on changes its digest's stream; one that was
        # completed before is in the book once that has the log of now.
        await self._reached()
        removed = 0
        for digest, blob in known.items():
            if blob.life.removed:
                continue
            if not blob.life.removing:
                if await parts.book.is_used(digest) or not await self._decide(digest, blob.version):
                    continue
                removed += await self._finish(digest, blob.version + 1)
            else:
                removed += await self._finish(digest, blob.version)
        return removed

    async def _decide(self, digest: str, version: int) -> bool:
        """Whether the removal is decided: no record came meanwhile."""
        return await self._tell(digest, BlobRemovalDecided(digest=digest), version)

    async def _finish(self, digest: str, version: int) -> bool:
        """Remove bytes whose removal is decided, and tell of it."""
        parts = self._parts
        # Whoever lost the lease must not remove what its successor lets be stored again.
        await parts.store.renew_lease(self._lease, LEASE_TTL_S)
        try:
            await parts.blobs.delete(digest)
        except Unavailable as error:
            _LOG.warning("bytes were not removed", blob=digest, error=error.message)
            return False
        return await self._tell(digest, BlobRemoved(digest=digest), version)

    async def _tell(
        self, digest: str, payload: BlobRemovalDecided | BlobRemoved, version: int
    ) -> bool:
        now = self._parts.clock.now()
        metadata = EventMetadata(
            occurred_at=now,
            traceparent=current_traceparent(),
            versions={"fastvideo": program_version()},
        )
        event = new_event(new_id("evt", milliseconds(now)), payload, metadata)
        return await self._append(StreamAppend(blob_stream_of(digest), (event,), version))

    async def _append(self, append: StreamAppend) -> bool:
        """Whether it was appended: the stream was as it had been read."""
        try:
            await self._parts.store.append(AppendCommand((append,), self._lease.fence))
        except Conflict:
            return False
        return True


@contextmanager
def _apart(trouble: str, subject: str) -> Iterator[None]:
    """One that many write to, or whose stream is damaged, does not keep the others."""
    try:
        yield
    except (Fenced, Unavailable):
        raise
    except FastVideoError as error:
        _LOG.error(trouble, subject=subject, error=error.message)


async def keep_swept(parts: SweepParts, holder: str, every_s: float) -> None:
    """Sweep whenever this process holds the lease; for ever, ends by cancellation.

    Raises CorruptLog when the log breaks its rules, or a newer program wrote it.
    """

    async def work(lease: Lease) -> None:
        following = asyncio.create_task(parts.projector.run(), name="sweep-book")
        sweeping = asyncio.create_task(Sweeper(parts, lease).run(every_s), name="sweeper")
        try:
            await asyncio.wait((following, sweeping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sweeping, following):
                task.cancel()
            ends = await asyncio.gather(sweeping, following, return_exceptions=True)
        for error in ends:
            if isinstance(error, Exception):
                raise error

    await lead(parts.store, LEASE, holder, work, ttl_s=LEASE_TTL_S)
