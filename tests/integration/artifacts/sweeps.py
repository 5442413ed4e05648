"""What sweeps work on, without a server: a log, a store, and a clock that is set by hand."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fastvideo.artifacts.events import ArtifactCompleted, ArtifactDeleted
from fastvideo.artifacts.state import artifact_id_of
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord, Producer
from fastvideo.blobs import ObjectBlobStore, open_blobs
from fastvideo.clock import ManualClock
from fastvideo.events.appender import Appender
from fastvideo.events.catalog import event_of, new_event
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.projections.projector import Projector
from fastvideo.events.records import AppendCommand, Lease, NewEvent, StoredEvent, StreamAppend
from fastvideo.events.subscription import PollLimits
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.ids import new_id
from fastvideo.requests.events import RequestAccepted, RequestCompleted, RequestDeleted
from fastvideo.requests.reading import read_request
from fastvideo.requests.standing import Standings
from fastvideo.requests.state import stream_of
from fastvideo.requests.types import ImagePart, OutputSpec, RequestMetrics, RequestState
from fastvideo.service.run import end_task
from fastvideo_artifacts.blob_uses import BlobUses
from fastvideo_artifacts.book import SweepBook
from fastvideo_artifacts.catalog import Catalog
from fastvideo_artifacts.history import ArtifactHistory
from fastvideo_artifacts.strays import Strays
from fastvideo_artifacts.sweeping import LEASE, Sweeper, SweepParts
from fastvideo_artifacts.uploads import UploadLimits, Uploads
from tests.integration.artifacts.worlds import SPEC

START = datetime(2026, 1, 1, tzinfo=UTC)
NEWER = 1_000
STRAYS_KEPT = timedelta(hours=1)
TENANT = "acme"
FILM, SHEET = b"a film" * 1000, b"a sheet" * 1000
TTL_S = 60
DONE = RequestCompleted(metrics=RequestMetrics(total_seconds=1.0))


@dataclass(frozen=True)
class Shop:
    """The parts that put, read and sweep."""

    store: PostgresEventStore
    blobs: ObjectBlobStore
    clock: ManualClock
    uploads: Uploads
    catalog: Catalog
    parts: SweepParts

    async def tell(self, stream_id: str, *payloads: EventPayload) -> None:
        """Append as another service would, at the time that the clock shows."""
        at = EventMetadata(tenant_id=TENANT, occurred_at=self.clock.now())
        events = tuple(new_event(new_id("evt", 1), payload, at) for payload in payloads)
        await self.store.append(AppendCommand(streams=(StreamAppend(stream_id, events),)))

    async def tell_unreadable(self, stream_id: str, type_: str) -> None:
        """Append as a newer program would."""
        event = NewEvent(new_id("evt", 1), type_, NEWER, b"", b"")
        await self.store.append(AppendCommand(streams=(StreamAppend(stream_id, (event,)),)))

    async def accept(
        self, request_id: str, ttl_s: int | None = None, inputs: Sequence[str] = ()
    ) -> None:
        """Begin a request with a lifetime, of images that were put."""
        spec = replace(
            SPEC,
            request_id=request_id,
            tenant_id=TENANT,
            outputs=OutputSpec(video=True, ttl_s=ttl_s),
            inputs=tuple(ImagePart(role="image", artifact_id=one) for one in inputs),
        )
        await self.tell(stream_of(request_id), RequestAccepted(spec=spec))

    async def put_input(self, name: str, data: bytes, ttl_s: int) -> str:
        """Store an input as the gateway does; the id of its artifact."""
        now = self.clock.now()
        record = ArtifactRecord(
            artifact_id=f"art_{name}",
            kind=ArtifactKind.IMAGE,
            name=name,
            content_type="image/png",
            producer=Producer(),
            created_at=now,
            tenant_id=TENANT,
            expires_at=now + timedelta(seconds=ttl_s),
        )
        await self.uploads.put(record, chunks_of(data), hashlib.sha256(data).hexdigest())
        return record.artifact_id

    async def put(self, request_id: str, output: str, data: bytes) -> ArtifactRecord:
        """Store an output of a request, or without one an input."""
        return await self.put_chunks(request_id, output, chunks_of(data))

    async def put_chunks(
        self, request_id: str, output: str, chunks: AsyncIterator[bytes]
    ) -> ArtifactRecord:
        """As `put`, with bytes as they come."""
        record = ArtifactRecord(
            artifact_id=artifact_id_of(request_id, "write", output),
            kind=ArtifactKind.LATENT,
            name=output,
            content_type="application/octet-stream",
            producer=Producer(request_id=request_id, node_id="write" if request_id else ""),
            created_at=self.clock.now(),
            tenant_id=TENANT,
        )
        return await self.uploads.put(record, chunks, "")

    async def made(self, request_id: str, *outputs: bytes, ttl_s: int | None = None) -> list[str]:
        """A completed request with these outputs; the ids of its artifacts."""
        await self.accept(request_id, ttl_s)
        records = [await self.put(request_id, f"o{i}", data) for i, data in enumerate(outputs)]
        await self.tell(stream_of(request_id), DONE)
        return [record.artifact_id for record in records]

    async def delete(self, request_id: str) -> None:
        """Delete a request as the gateway does."""
        await self.tell(stream_of(request_id), RequestDeleted())

    async def state(self, request_id: str) -> RequestState:
        """The request's fold."""
        state = await read_request(self.store, request_id)
        assert state is not None
        return state

    async def names(self, stream_id: str) -> list[str]:
        """Public names of a stream's events, in order."""
        return [event_of(stored).name for stored in await self.store.read_stream(stream_id)]

    async def stored(self) -> set[str]:
        """Digests whose bytes are there."""
        return {blob.digest async for blob in self.blobs.list()}

    async def lease(self, holder: str = "one") -> Lease:
        """The sweeper's lease, as soon as it is free."""
        lease = await self.store.acquire_lease(LEASE, holder, 60.0)
        assert lease is not None
        return lease

    async def sweeper(self, **instead: Any) -> Sweeper:
        """A sweeper that holds the lease, with other parts where they are given."""
        return Sweeper(replace(self.parts, **instead), await self.lease())

    async def require_no_dangling(self) -> None:
        """Every artifact that was not given up has its bytes."""
        stored = await self.stored()
        for artifact_id, digest in (await live_artifacts(self.store)).items():
            assert digest in stored, f"{artifact_id} points to nothing"


@asynccontextmanager
async def shop_of(
    dsn: str, blobs_url: str, options: Mapping[str, str] | None = None
) -> AsyncIterator[Shop]:
    """The parts over an empty log."""
    store = await PostgresEventStore.open(dsn)
    book = await SweepBook.open(dsn, await store.log_epoch())
    blobs = open_blobs(blobs_url, options)
    clock = ManualClock(START)
    uses = BlobUses(store, blobs)
    projector = Projector(store, book, None, PollLimits(interval_s_max=0.05))
    try:
        async with Appender(store) as appender:
            history = ArtifactHistory(store, appender, uses, clock)
            parts = SweepParts(
                store=store,
                history=history,
                uses=uses,
                book=book,
                projector=projector,
                blobs=blobs,
                strays=Strays(store, blobs, book, clock, STRAYS_KEPT),
                clock=clock,
            )
            uploads = Uploads(history, blobs, clock, UploadLimits(1_000_000, 1_000_000))
            catalog = Catalog(history, blobs, Standings(store, clock), clock)
            following = asyncio.create_task(projector.run())
            try:
                yield Shop(store, blobs, clock, uploads, catalog, parts)
            finally:
                await end_task(following)
    finally:
        await book.close()
        await store.close()


async def chunks_of(data: bytes) -> AsyncIterator[bytes]:
    """The bytes as they are put."""
    yield data


def is_unreadable(stored: StoredEvent) -> bool:
    """Whether `tell_unreadable` appended the event."""
    return stored.schema_version == NEWER


async def live_artifacts(store: PostgresEventStore) -> dict[str, str]:
    """Artifact to digest, by the log alone."""
    found: dict[str, str] = {}
    for partition in range(store.partition_count):
        offset = 0
        while events := await store.read_partition(partition, offset):
            offset = events[-1].offset
            for stored in events:
                if not stored.stream_id.startswith("artifact-"):
                    continue
                payload = event_of(stored).payload
                if isinstance(payload, ArtifactCompleted):
                    found[payload.record.artifact_id] = payload.record.digest
                elif isinstance(payload, ArtifactDeleted):
                    del found[payload.artifact_id]
    return found


class Killed(Exception):
    """The process is gone."""


class Steps:
    """Counts what changes something, and dies before or after one of them."""

    def __init__(self, dies_at: int) -> None:
        self._left = dies_at

    def dying(self, change: Callable[..., Any]) -> Callable[..., Any]:
        async def done(*args: Any, **options: Any) -> Any:
            self._step()
            result = await change(*args, **options)
            self._step()
            return result

        return done

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed


class Dying:
    """A part of which one method may be the last."""

    def __init__(self, part: Any, method: str, steps: Steps) -> None:
        self._part = part
        self._dying = {method: steps.dying(getattr(part, method))}

    def __getattr__(self, name: str) -> Any:
        return self._dying.get(name) or getattr(self._part, name)


def digest_of(data: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()
