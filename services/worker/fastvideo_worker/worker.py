"""The parts of a worker, put together, and their life from start to drain."""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Final

from fastvideo.api.scheduler.v1 import scheduler_pb2
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.cache.features import TextFeatureCache
from fastvideo.cache.redis_tier import RedisTier
from fastvideo.clock import SystemClock, milliseconds
from fastvideo.deployment.catalog import Catalog
from fastvideo.engine.artifact_writer import LOOP_ID, ArtifactWriter
from fastvideo.engine.budgets import machine_bytes, pool_budgets, role_budgets
from fastvideo.engine.executor import Executor
from fastvideo.engine.fingerprint import library_versions
from fastvideo.engine.loading import CatalogLoader, quiet_libraries
from fastvideo.engine.request_inputs import RequestInputs
from fastvideo.engine.residents import Residents
from fastvideo.ids import new_id
from fastvideo.memory.pools import MemoryPools, MemoryTag
from fastvideo.replay.process import Replays
from fastvideo.rpc.channel import MIB, open_channel
from fastvideo.rpc.server import Server, Service
from fastvideo.telemetry.logging import get_logger
from fastvideo_worker.announce import announce
from fastvideo_worker.artifact_client import GrpcArtifacts, NoArtifacts
from fastvideo_worker.assignments import Assignments
from fastvideo_worker.commands import Commands
from fastvideo_worker.config import Config
from fastvideo_worker.gauges import observe_worker
from fastvideo_worker.lanes import Lane
from fastvideo_worker.models import Models
from fastvideo_worker.replaying import replay_command
from fastvideo_worker.service import WorkerService
from fastvideo_worker.status import IO_SLOTS, WorkerStatus

_LOG: Final = get_logger(__name__)

_QUEUE_MAX: Final = 1024
# Transfers and published cache values are single messages.
_MESSAGE_BYTES_MAX: Final = 64 * MIB
_DRAIN_LOOK_S: Final = 0.02


class Worker:
    """One worker process: its server answers at once, its models load behind it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._clock = SystemClock()
        self._stack = AsyncExitStack()
        self._announcing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve, load and warm the models, then announce. Raises what loading raises."""
        config, started_s = self._config, time.monotonic()
        quiet_libraries()
        self._compute = self._lane("compute", config.compute_slots)
        io = self._lane("io", IO_SLOTS)
        budgets = pool_budgets(config.memory_bytes or machine_bytes())
        pools = MemoryPools(budgets, role_budgets(config.role_memory, budgets))
        artifacts = await self._artifacts()
        catalog = Catalog.load(checkpoints=config.checkpoints, packages=config.families)
        residents = Residents(
            pools,
            CatalogLoader(catalog, config.service_id, config.families),
            {LOOP_ID: ArtifactWriter(artifacts, config.service_id, library_versions())},
        )
        executor = Executor(
            worker_id=config.service_id,
            pools=pools,
            residents=residents,
            features=TextFeatureCache(pools.budgets_bytes[MemoryTag.CACHES]),
            clock=self._clock,
            shelf=artifacts,
            tier=self._tier(),
            watch_finite=config.watch_finite,
        )
        self._status = WorkerStatus(
            worker_id=config.service_id,
            incarnation=new_id("inc", milliseconds(self._clock.now())),
            residents=residents,
            pools=pools,
            places=lambda: executor.places,
            compute_slots=config.compute_slots,
            snapshots=bool(config.artifacts_address),
        )
        self._commands = Commands(
            worker_id=config.service_id,
            executor=executor,
            inputs=RequestInputs(artifacts, executor.values),
            compute=self._compute,
            io=io,
            # Of their own, so that a slow store holds up no artifact.
            snapshots=self._lane("snapshots", 2),
            clock=self._clock,
        )
        models = Models(
            catalog=catalog,
            residents=residents,
            executor=executor,
            status=self._status,
            compute=self._compute,
            loader=self._lane("loader", 1),
            waiters=self._lane("waiters", 4),
        )
        replays = Replays(replay_command(config))
        self._stack.push_async_callback(replays.close)
        self._service = WorkerService(
            status=self._status,
            executor=executor,
            commands=self._commands,
            assignments=Assignments(
                self._commands,
                worker_id=config.service_id,
                incarnation=self._status.incarnation,
                keep_s=config.keep_loops_s,
            ),
            models=models,
            compute=self._compute,
            io=io,
            clock=self._clock,
            replays=replays,
        )
        observe_worker(pools, executor, self._service)
        await self._serve()
        await models.start(config.models, config.threads)
        await self._server.set_ready(True)
        self._announce()
        _LOG.info(
            "worker ready",
            address=self._server.address,
            seconds=round(time.monotonic() - started_s, 2),
        )

    async def drain(self) -> None:
        """Take no new request, and end or hand over those that are here, within the grace.

        A scheduler that hears of it has saved and freed what would not end in time.
        """
        self._service.announce_drain("the worker was told to stop")
        await self._server.set_ready(False)
        if self._announcing is not None:
            self._announcing.cancel()
        deadline_s = time.monotonic() + self._config.drain_grace_s
        while not self._service.is_idle and time.monotonic() < deadline_s:  # noqa: ASYNC110
            # Loops are freed on other threads, which know no event of this loop.
            await asyncio.sleep(_DRAIN_LOOK_S)
        _LOG.info("worker drained", idle=self._service.is_idle)
        self._service.detach()

    async def stop(self) -> None:
        """Let go of everything; what still computes is given up."""
        if self._announcing is not None:
            self._announcing.cancel()
        await self._stack.aclose()

    def _tier(self) -> RedisTier | None:
        if not self._config.redis_url:
            return None
        tier = RedisTier(self._config.redis_url)
        self._stack.callback(tier.close)
        return tier

    async def _artifacts(self) -> GrpcArtifacts | NoArtifacts:
        if not self._config.artifacts_address:
            return NoArtifacts()
        channel = await self._stack.enter_async_context(
            open_channel(self._config.artifacts_address, tls=self._config.tls.client)
        )
        return GrpcArtifacts(channel, asyncio.get_running_loop())

    async def _serve(self) -> None:
        service = Service.of(
            worker_pb2.DESCRIPTOR,
            "WorkerService",
            worker_pb2_grpc.add_WorkerServiceServicer_to_server,
            self._service,
        )
        self._server = Server(
            self._config.listen,
            [service],
            tls=self._config.tls.server,
            message_bytes_max=_MESSAGE_BYTES_MAX,
            ready=False,
            grace_s=1.0,
        )
        await self._stack.enter_async_context(self._server)
        self._status.address = self._config.advertise or self._server.address

    def _announce(self) -> None:
        request = scheduler_pb2.AnnounceWorkerRequest(
            worker_id=self._status.worker_id,
            address=self._status.address,
            incarnation=self._status.incarnation,
        )
        self._announcing = asyncio.create_task(
            announce(
                self._config.scheduler_addresses,
                request,
                lambda: self._service.is_attached,
                self._config.tls.client,
            )
        )

    def _lane(self, name: str, threads: int) -> Lane:
        lane = Lane(name, threads=threads, queue_max=_QUEUE_MAX)
        self._stack.callback(lane.close)
        return lane
