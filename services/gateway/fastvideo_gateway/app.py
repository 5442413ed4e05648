"""The gateway put together: from configuration to a running server, and its orderly end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.api.events.v1 import log_pb2, log_pb2_grpc, projections_pb2_grpc
from fastvideo.api.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from fastvideo.api.scheduler.v1 import scheduler_pb2_grpc
from fastvideo.api.sessions.v1 import sessions_pb2, sessions_pb2_grpc
from fastvideo.clock import Clock, SystemClock
from fastvideo.deployment.catalog import Catalog
from fastvideo.events.appender import Appender, AppenderLimits
from fastvideo.events.archive.checks import StoredArchiveChecks
from fastvideo.events.open_bus import open_bus
from fastvideo.events.open_log import open_log
from fastvideo.events.projections.projector import Projector
from fastvideo.events.projections.service import KeptProjections, ProjectionServicer
from fastvideo.events.store import Appends, EventLog
from fastvideo.events.subscription import BESIDE_HINTS, PollLimits
from fastvideo.events.tailed import POLLING as BESIDE_TAIL
from fastvideo.events.tailed import TailedLog
from fastvideo.events.wakeups import Wakeups
from fastvideo.requests.standing import Standings
from fastvideo.rpc.callers import CallerInterceptor
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.outgoing import with_tenant
from fastvideo.rpc.server import Server, Service
from fastvideo.rpc.tls import ServerTls
from fastvideo.service.run import end_task
from fastvideo_gateway.access.directory import TenantDirectory
from fastvideo_gateway.access.keys import Keys
from fastvideo_gateway.access.rules import METHODS
from fastvideo_gateway.access.service import key_service
from fastvideo_gateway.cancellation import Canceller
from fastvideo_gateway.config import Config
from fastvideo_gateway.deletion import Deleter
from fastvideo_gateway.deployment import Engines
from fastvideo_gateway.event_log import EventLogService
from fastvideo_gateway.event_log_parts import EventLogParts, open_event_log
from fastvideo_gateway.explaining import Explainer
from fastvideo_gateway.following import keep_following
from fastvideo_gateway.health import Readiness, keep_checking
from fastvideo_gateway.http.app import HttpParts, http_app
from fastvideo_gateway.http.listener import HttpListener
from fastvideo_gateway.index import RequestIndex
from fastvideo_gateway.index_postgres import PostgresIndex
from fastvideo_gateway.lifetimes import Lifetimes
from fastvideo_gateway.listing import Lister
from fastvideo_gateway.log_gauges import LogGauges
from fastvideo_gateway.models import ModelDirectory
from fastvideo_gateway.offers import offered_models
from fastvideo_gateway.parity import ParityRecorder
from fastvideo_gateway.past import RequestPast
from fastvideo_gateway.proxy import ArtifactProxy, SessionProxy
from fastvideo_gateway.quotas.following import UsageSource, under_way_in
from fastvideo_gateway.quotas.keeping import KeptQuotas
from fastvideo_gateway.quotas.shared import RedisLedger
from fastvideo_gateway.replay_service import replay_service
from fastvideo_gateway.replaying import Replayer, ReplayParts
from fastvideo_gateway.served import ServedStates
from fastvideo_gateway.service import GatewayParts, GatewayService
from fastvideo_gateway.stored_inputs import StoredInputs
from fastvideo_gateway.submission import ChecksInputs, Submitter
from fastvideo_gateway.uploads import InputUploads
from fastvideo_gateway.watching import WatchHub

# How long a start waits for the keys; a gateway without them says so itself.
LOADED_S_MAX: Final = 10.0
# Callers hear why nothing is written before they give up: clients do after 15 s, where nobody says.
APPENDING: Final = AppenderLimits(room_timeout_s=10.0, retry_for_s=10.0)


@dataclass(frozen=True, slots=True)
class Core:
    """The gateway's parts behind its server; `run` must run beside them."""

    parts: GatewayParts
    # What everybody here follows the log by.
    tail: TailedLog
    projector: Projector
    tenants: TenantDirectory
    keys: Keys
    quotas: KeptQuotas
    lifetimes: Lifetimes

    async def run(self) -> None:
        """Follow the log for lists and watches, for ever; ends by cancellation."""
        parts = {
            "tail": self.tail.run,
            "projector": self.projector.run,
            "watches": self.parts.watches.run,
            "tenants": self.tenants.run,
            "quotas": self.quotas.run,
        }
        async with asyncio.TaskGroup() as group:
            for name, follow in parts.items():
                group.create_task(keep_following(name, follow), name=name)


def assemble(
    log: EventLog,
    appender: Appends,
    index: RequestIndex,
    catalog: Catalog,
    inputs: ChecksInputs,
    *,
    wakeups: Wakeups | None = None,
    polling: PollLimits | None = None,
    clock: Clock | None = None,
    shard: str = "0",
    engines: Engines | None = None,
    shared_quotas: RedisLedger | None = None,
    media_ttl_s: int = 0,
    share: float = 1.0,
) -> Core:
    """The parts over any log and any index."""
    clock = clock or SystemClock()
    tail = TailedLog(log, wakeups, polling)
    projector = Projector(tail, index, tail, BESIDE_TAIL)
    lister = Lister(index, projector, clock)
    standings = Standings(log, clock)
    tenants = TenantDirectory(tail, tail, BESIDE_TAIL)
    under_way = under_way_in(index, projector, log)
    usage = UsageSource(tail, under_way, clock, tail, BESIDE_TAIL)
    quotas = KeptQuotas(tenants, usage, shared_quotas)
    lifetimes = Lifetimes(tenants, media_ttl_s)
    canceller = Canceller(log, appender, lister, catalog, clock)
    watches = WatchHub(tail, tail, BESIDE_TAIL, standings=standings)
    parts = GatewayParts(
        log=log,
        standings=standings,
        submitter=Submitter(log, appender, catalog, inputs, clock, quotas, lifetimes),
        lister=lister,
        canceller=canceller,
        deleter=Deleter(appender, standings, canceller, watches, clock, share=share),
        watches=watches,
        explainer=Explainer(log, clock, shard),
        models=ModelDirectory(catalog, index),
        parity=ParityRecorder(log, appender, catalog, clock),
        engines=engines or Engines({}),
    )
    keys = Keys(log, appender, tenants, clock)
    return Core(parts, tail, projector, tenants, keys, quotas, lifetimes)


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway that serves."""

    address: str
    # Empty without an HTTP listener.
    http_address: str
    core: Core
    # Ends only by an error: the log broke its own rules.
    task: asyncio.Task[None]


@asynccontextmanager
async def running_gateway(config: Config) -> AsyncIterator[RunningGateway]:
    """Serve inside the block. Raises Unavailable when the database or a port cannot be had."""
    catalog = offered_models(config.models, config.checkpoints, config.families)
    tls = config.tls
    async with AsyncExitStack() as stack:
        opened = await open_log(config.log)
        stack.push_async_callback(opened.close)
        log = opened.store
        log_epoch = await log.log_epoch()
        index = await PostgresIndex.open(config.postgres_dsn, log_epoch)
        stack.push_async_callback(index.close)
        shared_quotas = RedisLedger(config.redis_url, log_epoch) if config.redis_url else None
        if shared_quotas is not None:
            stack.push_async_callback(shared_quotas.close)
        _, wakeups = await stack.enter_async_context(open_bus(config.nats_url))
        appender = await stack.enter_async_context(Appender(log, wakeups, APPENDING))
        artifacts = await stack.enter_async_context(
            open_channel(config.artifacts_address, tls=tls.client, interceptors=with_tenant())
        )
        sessions = await stack.enter_async_context(
            open_channel(config.sessions_address, tls=tls.client, interceptors=with_tenant())
        )
        schedulers = {
            address: scheduler_pb2_grpc.SchedulerServiceStub(
                await stack.enter_async_context(open_channel(address, tls=tls.client))
            )
            for address in config.scheduler_addresses
        }
        artifact_stub = artifacts_pb2_grpc.ArtifactServiceStub(artifacts)
        session_stub = sessions_pb2_grpc.SessionServiceStub(sessions)
        clock = SystemClock()
        inputs = StoredInputs(artifact_stub, clock)
        polling = BESIDE_HINTS if config.nats_url else None
        core = assemble(
            log,
            appender,
            index,
            catalog,
            inputs,
            wakeups=wakeups,
            polling=polling,
            shard=config.shard,
            engines=Engines(schedulers),
            shared_quotas=shared_quotas,
            media_ttl_s=config.media_ttl_s,
            share=config.access.share,
        )
        event_log = await stack.enter_async_context(
            open_event_log(
                config.postgres_dsn,
                log,
                core.tail,
                projections=(index,),
                archives=(StoredArchiveChecks(opened.sealed),),
            )
        )
        projections = ProjectionServicer(
            KeptProjections(config.postgres_dsn, log, event_log.projections),
            behind=[
                projections_pb2_grpc.ProjectionServiceStub(sessions),
                projections_pb2_grpc.ProjectionServiceStub(artifacts),
            ],
        )
        replayer = Replayer(
            ReplayParts(
                log=log,
                served=ServedStates(index, core.projector, session_stub, artifact_stub),
                workers=index,
                behaviors=event_log.behaviors,
                catalog=catalog,
                shard=config.shard,
                tls=tls.client,
            )
        )
        door = config.access.door(core.tenants, clock)
        uploads = InputUploads(artifact_stub, core.lifetimes, clock, share=config.access.share)
        server = Server(
            config.listen,
            (
                *services(
                    GatewayService(core.parts),
                    ArtifactProxy(artifact_stub, uploads),
                    SessionProxy(session_stub),
                    EventLogService(event_log),
                ),
                replay_service(replayer),
                projections.service(),
                key_service(core.keys),
            ),
            interceptors=[CallerInterceptor(door.entering, METHODS)],
            tls=tls.server,
            ready=False,
        )
        readiness = Readiness(quotas=lambda: core.quotas.kept_in)
        parts = HttpParts(
            core.parts,
            RequestPast(core.parts.log, clock, core.parts.standings),
            event_log.reader,
            replayer.replay,
            artifact_stub,
            uploads,
            session_stub,
            readiness,
            asyncio.Event(),
            door,
            config.access.share,
        )
        http = _http(config.http_listen, parts, tls.server)
        task = asyncio.create_task(_run(core, event_log, readiness, server), name="gateway")
        stack.push_async_callback(end_task, task)
        await stack.enter_async_context(server)
        if http is not None:
            await http.start()
            stack.push_async_callback(http.stop)
        # Whoever calls at once would be told to wait for the keys.
        await core.tenants.until_loaded(LOADED_S_MAX)
        yield RunningGateway(server.address, http.address if http else "", core, task)


def services(
    gateway: GatewayService,
    artifacts: ArtifactProxy,
    sessions: SessionProxy,
    event_log: EventLogService,
) -> tuple[Service, ...]:
    """What one address of the gateway serves."""
    return (
        Service.of(
            gateway_pb2.DESCRIPTOR,
            "GatewayService",
            gateway_pb2_grpc.add_GatewayServiceServicer_to_server,
            gateway,
        ),
        Service.of(
            artifacts_pb2.DESCRIPTOR,
            "ArtifactService",
            artifacts_pb2_grpc.add_ArtifactServiceServicer_to_server,
            artifacts,
        ),
        Service.of(
            sessions_pb2.DESCRIPTOR,
            "SessionService",
            sessions_pb2_grpc.add_SessionServiceServicer_to_server,
            sessions,
        ),
        Service.of(
            log_pb2.DESCRIPTOR,
            "EventLogService",
            log_pb2_grpc.add_EventLogServiceServicer_to_server,
            event_log,
        ),
    )


def _http(listen: str, parts: HttpParts, tls: ServerTls | None) -> HttpListener | None:
    if not listen:
        return None
    return HttpListener(listen, http_app(parts, listen), parts.closing, tls)


async def _run(core: Core, event_log: EventLogParts, readiness: Readiness, server: Server) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(core.run(), name="core")
        group.create_task(event_log.run(), name="event-log")
        group.create_task(LogGauges(event_log).run(), name="log-gauges")
        checking = keep_checking(
            readiness, event_log.log, core.parts.models, core.tenants, server.set_ready
        )
        group.create_task(checking, name="readiness")
