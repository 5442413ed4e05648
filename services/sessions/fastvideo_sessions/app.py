"""The session service put together: from configuration to a running server, and its end."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from fastvideo.api.sessions.v1 import sessions_pb2, sessions_pb2_grpc
from fastvideo.bus import Bus
from fastvideo.bus.memory import MemoryBus
from fastvideo.clock import Clock, SystemClock
from fastvideo.deployment.catalog import Catalog
from fastvideo.events.appender import Appender
from fastvideo.events.catalog import decode_from_bus, event_of
from fastvideo.events.consumer import ConsumerParts, run_consumer
from fastvideo.events.open_bus import open_bus
from fastvideo.events.open_log import open_log
from fastvideo.events.projections.projector import AT_EASE_S, Projector
from fastvideo.events.projections.service import KeptProjections, ProjectionServicer
from fastvideo.events.reading.gauges import LagGauges, Positions
from fastvideo.events.store import Appends, EventStore
from fastvideo.events.subscription import BESIDE_HINTS, PollLimits
from fastvideo.events.types import Event
from fastvideo.events.wakeups import Wakeups
from fastvideo.rpc.callers import CallerInterceptor, service_caller
from fastvideo.rpc.server import Server, Service
from fastvideo.service.run import end_task
from fastvideo_sessions.book import SessionBook
from fastvideo_sessions.config import Config
from fastvideo_sessions.creation import Creator
from fastvideo_sessions.expiry import Expiry
from fastvideo_sessions.following import TYPES, RequestFollower
from fastvideo_sessions.index import SessionIndex
from fastvideo_sessions.index_postgres import PostgresIndex
from fastvideo_sessions.pushing import Pusher
from fastvideo_sessions.service import SessionParts, SessionServicer

CONSUMER: Final = "sessions"


@dataclass(frozen=True, slots=True)
class Core:
    """The service's parts behind its server; `run` must run beside them."""

    parts: SessionParts
    expiry: Expiry
    consumer: ConsumerParts[Event]
    clock: Clock

    async def run(self, holder: str) -> None:
        """Follow requests, keep the index, close the quiet; for ever, ends by cancellation."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.parts.projector.run(), name="projector")
            group.create_task(self.expiry.run(self.clock), name="expiry")
            group.create_task(run_consumer(self.consumer, holder), name="consumer")
            group.create_task(LagGauges(self.consumer.store, self._positions).run(), name="lags")

    async def _positions(self) -> Positions:
        return {CONSUMER: self.parts.projector.positions}


def assemble(
    store: EventStore,
    appender: Appends,
    bus: Bus,
    index: SessionIndex,
    catalog: Catalog,
    config: Config,
    *,
    wakeups: Wakeups | None = None,
    polling: PollLimits | None = None,
    clock: Clock | None = None,
) -> Core:
    """The parts over any log, bus and index."""
    clock = clock or SystemClock()
    book = SessionBook(store, appender, clock)
    creator = Creator(
        store,
        appender,
        book,
        catalog,
        clock,
        inactivity_timeout_s=config.inactivity_timeout_s,
        prompt_memory_limit=config.prompt_memory_limit,
    )
    pusher = Pusher(store, appender, book, clock)
    projector = Projector(store, index, wakeups, polling, gather_s=AT_EASE_S)
    parts = SessionParts(creator, pusher, book, index, projector)
    consumer = ConsumerParts(
        name=CONSUMER,
        store=store,
        bus=bus,
        handle=RequestFollower(store, book).handle,
        decode_message=decode_from_bus,
        decode_stored=event_of,
        types=TYPES,
        append=appender.append,
    )
    return Core(parts, Expiry(index, book), consumer, clock)


@dataclass(frozen=True, slots=True)
class RunningSessions:
    """A session service that serves."""

    address: str
    core: Core
    # Ends only by an error: the log broke its own rules.
    task: asyncio.Task[None]


@asynccontextmanager
async def running_sessions(config: Config) -> AsyncIterator[RunningSessions]:
    """Serve inside the block. Raises Unavailable when the database or the port cannot be had."""
    catalog = Catalog.load(None, config.checkpoints, packages=config.families)
    async with AsyncExitStack() as stack:
        opened = await open_log(config.log)
        stack.push_async_callback(opened.close)
        store = opened.store
        index = await PostgresIndex.open(config.postgres_dsn, await store.log_epoch())
        stack.push_async_callback(index.close)
        bus, wakeups = await stack.enter_async_context(open_bus(config.nats_url))
        appender = await stack.enter_async_context(Appender(store, wakeups))
        polling = BESIDE_HINTS if config.nats_url else None
        core = assemble(
            store,
            appender,
            # Nothing is published on a bus in memory: the consumer goes on from the log.
            bus or MemoryBus(),
            index,
            catalog,
            config,
            wakeups=wakeups,
            polling=polling,
        )
        # A process that was restarted does not take itself for the one that died.
        holder = f"{config.service_id}-{secrets.token_hex(4)}"
        task = asyncio.create_task(core.run(holder), name="sessions")
        stack.push_async_callback(end_task, task)
        service = Service.of(
            sessions_pb2.DESCRIPTOR,
            "SessionService",
            sessions_pb2_grpc.add_SessionServiceServicer_to_server,
            SessionServicer(core.parts),
        )
        projections = ProjectionServicer(KeptProjections(config.postgres_dsn, store, (index,)))
        server = await stack.enter_async_context(
            Server(
                config.listen,
                [service, projections.service()],
                interceptors=[CallerInterceptor(service_caller)],
                tls=config.tls.server,
            )
        )
        yield RunningSessions(server.address, core, task)
