"""The composition: adapters from the configuration, the service on top, the server around it."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.blobs import ObjectBlobStore, open_blobs
from fastvideo.clock import SystemClock
from fastvideo.errors import FastVideoError
from fastvideo.events.appender import Appender
from fastvideo.events.open_bus import open_bus
from fastvideo.events.open_log import LogConfig
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.projections.projector import Projector
from fastvideo.events.projections.service import KeptProjections, ProjectionServicer
from fastvideo.events.subscription import PollLimits
from fastvideo.requests.standing import Standings
from fastvideo.rpc.server import Server, Service
from fastvideo.service.run import end_task
from fastvideo.telemetry import metrics
from fastvideo.telemetry.instruments import REASON, REMOVALS_OVERDUE, SWEEP_FAILURES
from fastvideo.telemetry.logging import get_logger
from fastvideo_artifacts.blob_uses import BlobUses
from fastvideo_artifacts.book import SweepBook
from fastvideo_artifacts.catalog import Catalog
from fastvideo_artifacts.config import Config, plain_url
from fastvideo_artifacts.history import ArtifactHistory
from fastvideo_artifacts.plain_blobs import BlobLimits, PlainBlobs
from fastvideo_artifacts.servicer import ArtifactServicer
from fastvideo_artifacts.strays import Strays
from fastvideo_artifacts.sweeping import SweepParts, keep_swept
from fastvideo_artifacts.uploads import UploadLimits, Uploads

_LOG: Final = get_logger(__name__)

# Longer than any upload takes: a part that is older belongs to a process that died.
UNFINISHED_KEPT: Final = timedelta(days=1)

# The sweeper is in no hurry; with hints it need not look often.
POLLING_OF_BOOK: Final = PollLimits(interval_s_min=0.05, interval_s_max=1.0)


@dataclass(frozen=True, slots=True)
class RunningArtifacts:
    """A serving service."""

    address: str
    task: asyncio.Task[None] | None = None


@contextlib.asynccontextmanager
async def running_artifacts(config: Config) -> AsyncIterator[RunningArtifacts]:
    """The serving server; leaving the context lets running calls end and closes everything."""
    async with contextlib.AsyncExitStack() as stack:
        # Artifacts' events hold nothing that a tenant wrote: there is nothing to open.
        log = LogConfig(config.postgres_dsn, config.archive_url, config.s3_endpoint)
        store = await PostgresEventStore.open(config.postgres_dsn, archive=log.archive())
        stack.push_async_callback(store.close)
        _, wakeups = await stack.enter_async_context(open_bus(config.nats_url))
        appender = await stack.enter_async_context(Appender(store, wakeups))
        clock = SystemClock()
        blobs = _open_blobs(config.blobs_url, config)
        removed = await blobs.remove_unfinished(clock.now() - UNFINISHED_KEPT)
        if removed:
            _LOG.info("removed unfinished uploads", count=removed)
        uses = BlobUses(store, blobs)
        history = ArtifactHistory(store, appender, uses, clock)
        limits = UploadLimits(config.artifact_bytes_max, config.update_every_bytes)
        plain = PlainBlobs(
            _open_blobs(plain_url(config.blobs_url), config),
            BlobLimits(config.artifact_bytes_max, config.blobs_kept),
            clock,
        )
        clearing = asyncio.create_task(plain.keep_clear())
        stack.callback(clearing.cancel)
        book = await SweepBook.open(config.postgres_dsn, await store.log_epoch())
        stack.push_async_callback(book.close)
        parts = SweepParts(
            store=store,
            history=history,
            uses=uses,
            book=book,
            projector=Projector(store, book, wakeups, POLLING_OF_BOOK),
            blobs=blobs,
            strays=Strays(store, blobs, book, clock, config.strays_kept),
            clock=clock,
        )
        metrics.observe(REMOVALS_OVERDUE, lambda: [(float(book.overdue), {})])
        # A process that was restarted does not take itself for the one that died.
        holder = f"{config.service_id}-{secrets.token_hex(4)}"
        sweeping = asyncio.create_task(_sweep(parts, holder, config.sweep_s), name="sweeping")
        stack.push_async_callback(end_task, sweeping)
        projections = ProjectionServicer(KeptProjections(config.postgres_dsn, store, (book,)))
        servicer = ArtifactServicer(
            Catalog(history, blobs, Standings(store, clock), clock),
            Uploads(history, blobs, clock, limits),
            plain,
            clock,
        )
        service = Service.of(
            artifacts_pb2.DESCRIPTOR,
            "ArtifactService",
            artifacts_pb2_grpc.add_ArtifactServiceServicer_to_server,
            servicer,
        )
        server = await stack.enter_async_context(
            Server(config.listen, [service, projections.service()], tls=config.tls.server)
        )
        yield RunningArtifacts(server.address)


async def _sweep(parts: SweepParts, holder: str, every_s: float) -> None:
    """Sweep for ever; what the log cannot be swept by is told, counted, and tried again."""
    failures = metrics.counter(SWEEP_FAILURES)
    while True:
        try:
            await keep_swept(parts, holder, every_s)
        except FastVideoError as error:
            failures.add(1, {REASON: error.reason})
            _LOG.error("sweeping was interrupted", reason=error.reason, error=error.message)
        await asyncio.sleep(every_s)


def _open_blobs(url: str, config: Config) -> ObjectBlobStore:
    options = {"endpoint": config.s3_endpoint} if config.s3_endpoint else None
    return open_blobs(url, options)
