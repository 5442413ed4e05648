"""Sweep: tell the log what has gone, then remove the bytes that no record has any more.

One process at a time, under a lease that its appends carry. Every step is looked up in the log and
may be done again: whoever is killed between two of them leaves what the next one goes on with.
Nobody waits for it: what has expired is refused from that moment, swept or not.

A sweep goes once through all that is due. What cannot be done is told, counted and passed by; the
next sweep comes back to it.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Final, TypeVar

from fastvideo.artifacts.events import BlobRemovalDecided, BlobRemoved
from fastvideo.artifacts.removal import BlobLife
from fastvideo.artifacts.removal import stream_of as blob_stream_of
from fastvideo.blobs import BlobStore, KeptByStore
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
from fastvideo.telemetry import metrics
from fastvideo.telemetry.instruments import REASON, SWEEP_FAILURES
from fastvideo.telemetry.logging import get_logger
from fastvideo.telemetry.tracing import current_traceparent
from fastvideo.version import program_version
from fastvideo_artifacts.blob_uses import BlobUses, KnownBlob
from fastvideo_artifacts.book import DueArtifact, SweepBook
from fastvideo_artifacts.history import ArtifactHistory
from fastvideo_artifacts.strays import Strays

_LOG: Final = get_logger(__name__)

LEASE: Final = "artifact-sweeper"
LEASE_TTL_S: Final = 5.0
AT_ONCE_MAX: Final = 200
"""What is taken up at a time."""
REACHED_S_MAX: Final = 60.0
LIST_EVERY_S: Final = 6 * 3600.0
"""Seconds between two lists of the whole store."""
LIST_AGAIN_S: Final = 1800.0
"""Seconds until the next one where something of a list could not be done."""
TOLD_MAX: Final = 10
"""Failures of one sweep that are told one by one; all are counted."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepParts:
    """What a sweeper works with."""

    store: EventStore
    history: ArtifactHistory
    uses: BlobUses
    book: SweepBook
    projector: Projector
    blobs: BlobStore
    strays: Strays
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep did."""

    expired: int = 0
    given_up: int = 0
    removed: int = 0
    # What could not be done, and is tried again by the next one.
    failed: int = 0

    def __bool__(self) -> bool:
        return bool(self.expired or self.given_up or self.removed or self.failed)


class Sweeper:
    """One holder of the lease."""

    def __init__(self, parts: SweepParts, lease: Lease) -> None:
        self._parts = parts
        self._lease = lease
        self._failed = 0
        # Of what the store refused, what it was asked for last.
        self._asked = ""
        self._failures = metrics.counter(SWEEP_FAILURES)

    async def run(self, every_s: float) -> None:
        """Sweep again and again; ends by cancellation, by Fenced when the lease is lost."""
        clock_s = asyncio.get_running_loop().time
        list_at_s = clock_s()
        while True:
            swept = await self.sweep()
            if clock_s() >= list_at_s:
                strays = await self.clear()
                list_at_s = clock_s() + (LIST_AGAIN_S if strays.failed else LIST_EVERY_S)
                swept = replace(
                    swept,
                    removed=swept.removed + strays.removed,
                    failed=swept.failed + strays.failed,
                )
            if swept:
                _LOG.info("artifacts swept", **asdict(swept))
            await asyncio.sleep(every_s)

    async def sweep(self) -> Swept:
        """Everything that is due now.

        Raises Unavailable when the log does not answer, or the book does not follow it.
        """
        parts, now = self._parts, self._parts.clock.now()
        book = parts.book
        self._failed = 0
        await self._reached()
        await self._each(book.held, str, self._take_again, "stream held")
        expired = await self._each(
            partial(book.to_expire, now), str, self._tell_expired, "expiry not told"
        )
        given_up = await self._each(
            partial(book.due, now), attrgetter("artifact_id"), self._give_up, "not given up"
        )
        await self._reached()
        removed, after = 0, ""
        while digests := await book.unused(after, AT_ONCE_MAX):
            removed += await self._remove(digests)
            after = digests[-1]
        await self._count_overdue()
        return Swept(expired=expired, given_up=given_up, removed=removed, failed=self._failed)

    async def clear(self) -> Swept:
        """Remove the bytes that no record ever named, and those that the store did not let go.

        Raises as `sweep` does.
        """
        removed = self._failed = 0
        with self._apart("not listed to its end", "store"):
            async with aclosing(self._parts.strays.pages()) as pages:
                async for digests in pages:
                    removed += await self._remove(digests)
        # No reason to list the store again soon.
        failed = self._failed
        removed += await self._remove_refused()
        return Swept(removed=removed, failed=failed)

    async def _remove_refused(self) -> int:
        """Ask the store again for what it refused, until it refuses one; how many it let go.

        Each time it is another one that is asked for first.
        """
        refused, removed = await self._parts.book.refused(), 0
        begin = bisect_right(refused, self._asked)
        for digest in (*refused[begin:], *refused[:begin]):
            self._asked = digest
            gone = await self._remove((digest,))
            if not gone:
                break
            removed += gone
        return removed

    async def _count_overdue(self) -> None:
        before = self._parts.book.overdue
        overdue = await self._parts.book.count_overdue()
        if overdue and overdue != before:
            _LOG.error("removals are overdue", blobs=overdue)

    async def _each(
        self,
        find: Callable[[str, int], Awaitable[Sequence[T]]],
        key: Callable[[T], str],
        do: Callable[[T], Awaitable[bool]],
        trouble: str,
    ) -> int:
        """Do something for all that is found, page by page; for how many it was done."""
        done, after = 0, ""
        while found := await find(after, AT_ONCE_MAX):
            for one in found:
                with self._apart(trouble, key(one)):
                    done += await do(one)
            after = key(found[-1])
        return done

    async def _reached(self) -> None:
        """Wait until the book holds what is in the log now."""
        heads = await self._parts.store.heads()
        try:
            async with asyncio.timeout(REACHED_S_MAX):
                await self._parts.projector.reached(heads)
        except TimeoutError as error:
            raise Unavailable("the sweeper's book is behind the log") from error

    async def _take_again(self, stream_id: str) -> bool:
        """Read a stream again that could not be read."""
        await self._parts.book.take_again(stream_id, self._parts.store)
        return True

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

    async def _give_up(self, one: DueArtifact) -> bool:
        """Tell of an artifact whose bytes go."""
        await self._parts.history.delete(one.artifact_id, one.reason, self._lease.fence)
        return True

    async def _remove(self, digests: Sequence[str]) -> int:
        """Remove the bytes of those digests that no record has."""
        known: dict[str, KnownBlob] = {}
        for digest in digests:
            with self._apart("bytes not removed", digest):
                known[digest] = await self._parts.uses.read(digest)
        # A record that is completed from here on changes its digest's stream; one that was
        # completed before is in the book once that has the log of now.
        await self._reached()
        removed = 0
        for digest, blob in known.items():
            with self._apart("bytes not removed", digest):
                removed += await self._remove_one(digest, blob)
        return removed

    async def _remove_one(self, digest: str, blob: KnownBlob) -> bool:
        """Decide the removal unless it is decided, remove the bytes, and tell of it."""
        parts, version = self._parts, blob.version
        if not blob.life.removing:
            decided = BlobRemovalDecided(digest=digest)
            # Not where a record came meanwhile.
            if await self._is_used(digest, blob.life) or not await self._tell(
                digest, decided, version
            ):
                return False
            version += 1
        # Whoever lost the lease must not remove what its successor lets be stored again.
        await parts.store.renew_lease(self._lease, LEASE_TTL_S)
        try:
            await parts.blobs.delete(digest)
        except Unavailable as error:
            # It may have them removed yet: no record may have them meanwhile.
            self._fail("bytes not removed", digest, error)
            return False
        except KeptByStore as error:
            # Whoever puts the same bytes must not wait for who may remove them.
            self._fail("bytes not removed", digest, error)
            await self._tell(digest, BlobRemoved(digest=digest, refused=True), version)
            return False
        return await self._tell(digest, BlobRemoved(digest=digest), version)

    async def _is_used(self, digest: str, life: BlobLife) -> bool:
        """Whether an artifact has the bytes: by the book, or by the log, which it may lag behind.

        Raises CorruptLog when an artifact that had them cannot be read.
        """
        if await self._parts.book.is_used(digest):
            return True
        for artifact_id in life.artifact_ids:
            state = (await self._parts.history.read(artifact_id)).state
            if state is not None and not state.deleted and state.record.digest == digest:
                return True
        return False

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
    def _apart(self, trouble: str, subject: str) -> Iterator[None]:
        """One that many write to, or whose stream is damaged, does not keep the others."""
        try:
            yield
        except (Fenced, Unavailable):
            raise
        except FastVideoError as error:
            self._fail(trouble, subject, error)

    def _fail(self, trouble: str, subject: str, error: FastVideoError) -> None:
        self._failed += 1
        self._failures.add(1, {REASON: error.reason})
        if self._failed <= TOLD_MAX:
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
            parts.book.overdue = 0
            for task in (sweeping, following):
                task.cancel()
            ends = await asyncio.gather(sweeping, following, return_exceptions=True)
        for error in ends:
            if isinstance(error, Exception):
                raise error

    await lead(parts.store, LEASE, holder, work, ttl_s=LEASE_TTL_S)
