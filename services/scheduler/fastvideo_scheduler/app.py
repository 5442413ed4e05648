"""The scheduler put together: from configuration to a running server, and its orderly end."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from fastvideo import wire
from fastvideo.api.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from fastvideo.clock import SystemClock, milliseconds
from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import Unavailable
from fastvideo.events.catalog import PAYLOADS, encode_for_bus
from fastvideo.events.open_bus import open_bus
from fastvideo.events.open_log import open_log
from fastvideo.events.relay import RelayParts, run_relay
from fastvideo.events.subscription import BESIDE_HINTS
from fastvideo.events.types import EventMetadata
from fastvideo.events.upkeep import run_upkeep
from fastvideo.ids import new_id
from fastvideo.rpc.server import Server, Service
from fastvideo.scheduling.deployed import DeployedModels
from fastvideo.service.run import end_task
from fastvideo.telemetry.logging import get_logger
from fastvideo_scheduler.config import Config
from fastvideo_scheduler.gauges import ShardGauges
from fastvideo_scheduler.leader import LeaderParts
from fastvideo_scheduler.service import SchedulerService
from fastvideo_scheduler.shard import Shard
from fastvideo_scheduler.stream import COMMANDS

_LOG: Final = get_logger(__name__)

# How long a starting scheduler waits for the database.
DATABASE_WAIT_S: Final = 60.0
RETRY_S: Final = 0.25

T = TypeVar("T")

# Live requests are many objects that stay and have no cycles: by Python's own thresholds, looking
# through all of them again and again made a unit 1.55 times as dear with ten times the loops, and
# 1.2 times without. New objects are still looked through after 50,000 more of them.
COLLECTOR_THRESHOLDS: Final = (50_000, 20, 100)


@dataclass(frozen=True, slots=True)
class RunningScheduler:
    """A scheduler that serves."""

    address: str
    shard: Shard
    # Ends only by an error that nothing but a new start mends.
    task: asyncio.Task[None]


@asynccontextmanager
async def running_scheduler(config: Config) -> AsyncIterator[RunningScheduler]:
    """Lead or stand by inside the block; the lease is given back at its end.

    Raises Unavailable when the database or the port cannot be had.
    """
    catalog = Catalog.load(
        models=config.models, checkpoints=config.checkpoints, packages=config.families
    )
    _warm_up()
    clock = SystemClock()
    # A restarted process must not share an epoch with its dead self.
    holder = new_id(config.service_id, milliseconds(clock.now()))
    async with AsyncExitStack() as stack:
        log = await _patiently(lambda: open_log(config.log))
        stack.push_async_callback(log.close)
        bus, wakeups = await stack.enter_async_context(open_bus(config.nats_url))
        parts = LeaderParts(
            store=log.store,
            wakeups=wakeups,
            polling=BESIDE_HINTS if bus is not None else None,
            models=DeployedModels(catalog),
            clock=clock,
            policy=replace(
                config.policy,
                resident_requests_max=config.resident_requests_max,
                attempts_max=config.attempts_max,
            ),
            scheduler_id=config.service_id,
            shard=config.shard,
            worker_timeout_s=config.worker_timeout_s,
            tls=config.tls.client,
            cards={entry.card.model_id: entry.card_digest for entry in catalog.entries},
        )
        shard = Shard(parts, holder=holder, lease_ttl_s=config.lease_ttl_s)
        service = Service.of(
            scheduler_pb2.DESCRIPTOR,
            "SchedulerService",
            scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server,
            SchedulerService(shard, catalog),
        )
        server = await stack.enter_async_context(
            Server(config.listen, [service], tls=config.tls.server)
        )
        relay = None
        if bus is None:
            _LOG.warning("no bus: events are not relayed, and hints stay in this process")
        else:
            relay = RelayParts(
                store=log.sealed,
                bus=bus,
                encode=encode_for_bus,
                wakeups=wakeups,
                polling=BESIDE_HINTS,
            )
        gauges = ShardGauges(shard, catalog.model_ids, log.sealed, clock)
        running = _run(shard, gauges, relay, holder, config.postgres_dsn)
        task = asyncio.create_task(running, name="scheduler")
        stack.push_async_callback(end_task, task)
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        yield RunningScheduler(server.address, shard, task)


async def _run(
    shard: Shard, gauges: ShardGauges, relay: RelayParts | None, holder: str, dsn: str
) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(gauges.run(), name="gauges")
        group.create_task(run_upkeep(dsn), name="upkeep")
        group.create_task(shard.run(), name="shard")
        if relay is not None:
            group.create_task(run_relay(relay, holder), name="relay")


def _warm_up() -> None:
    """Build the converters of all messages now rather than in the first request."""
    for message in (*PAYLOADS.values(), EventMetadata, *COMMANDS):
        wire.check(message)


async def _patiently(make: Callable[[], Awaitable[T]]) -> T:
    """What `make` gives, tried again while the database is away."""
    deadline = asyncio.get_running_loop().time() + DATABASE_WAIT_S
    while True:
        try:
            return await make()
        except Unavailable as error:
            if asyncio.get_running_loop().time() > deadline:
                raise
            _LOG.warning("waiting for the database", error=error.message)
        await asyncio.sleep(RETRY_S)
