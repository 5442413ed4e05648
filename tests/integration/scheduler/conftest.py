"""A real scheduler on real Postgres and NATS, and what a test does around it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fastvideo.api.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from fastvideo.bus.nats import NatsBus, NatsBusConfig
from fastvideo.clock import milliseconds
from fastvideo.events.appender import Appender
from fastvideo.events.catalog import TERMINAL, event_of, new_event
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.types import Event, EventMetadata, EventPayload
from fastvideo.events.wakeups import BusWakeups
from fastvideo.ids import new_id
from fastvideo.requests.events import RequestAccepted, RequestCancelRequested
from fastvideo.requests.state import stream_of
from fastvideo.requests.types import RequestSpec
from fastvideo.rpc.channel import open_channel
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo_scheduler.app import RunningScheduler, running_scheduler
from fastvideo_scheduler.config import Config
from tests.integration.scheduler.scripted_worker import MODEL, ScriptedWorker
from tests.unit.scheduling.world import request

WAIT_S = 120.0
# Of schedulers of tests in which a worker is lost by its silence.
LOSES_SOON: dict[str, Any] = {"worker_timeout_s": 1.0}


async def until(condition: Callable[[], object], *, within_s: float = WAIT_S) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


@dataclass
class Stage:
    """The log as gateways write and read it, and schedulers and workers by name."""

    store: PostgresEventStore
    appender: Appender
    dsn: str
    nats_url: str
    stack: AsyncExitStack
    # Whether a scheduler of this stage has led.
    has_led: bool = False

    async def scheduler(self, name: str = "scheduler-1", **changes: Any) -> RunningScheduler:
        """Start a scheduler; it ends with the test. The first one leads before others come."""
        running = await self.stack.enter_async_context(self.scheduling(name, **changes))
        if not self.has_led:
            await until(lambda: running.shard.leader is not None)
            self.has_led = True
        return running

    def scheduling(self, name: str = "scheduler-1", **changes: Any):
        config = Config(
            listen="127.0.0.1:0",
            service_id=name,
            postgres_dsn=self.dsn,
            nats_url=self.nats_url,
            models=(MODEL,),
            # Given back at the end; nobody loses it, or a worker, because the machine is busy.
            lease_ttl_s=60.0,
            worker_timeout_s=10.0,
        )
        return running_scheduler(replace(config, **changes))

    async def worker(self, name: str, *schedulers: RunningScheduler, **options) -> ScriptedWorker:
        """Start a worker that is attached; it ends with the test."""
        worker = ScriptedWorker(name, [s.address for s in schedulers], **options)
        return await self.attached(worker, *schedulers)

    async def attached(
        self, worker: ScriptedWorker, *schedulers: RunningScheduler
    ) -> ScriptedWorker:
        """Start a worker, and wait until the one that leads has heard what it is."""
        await self.stack.enter_async_context(worker)
        await until(lambda: worker.epochs and any(_knows(s, worker) for s in schedulers))
        return worker

    async def append(self, request_id: str, payload: EventPayload, traceparent: str = "") -> str:
        """Append to the request's stream; the id of the event."""
        now = datetime.now(UTC)
        metadata = EventMetadata(request_id=request_id, occurred_at=now, traceparent=traceparent)
        event = new_event(new_id("evt", milliseconds(now)), payload, metadata)
        stream = StreamAppend(stream_of(request_id), (event,))
        await self.appender.append(AppendCommand(streams=(stream,)))
        return event.event_id

    async def submit(self, request_id: str, *, traceparent: str = "", **options) -> RequestSpec:
        """Accept a request as the gateway does."""
        spec = request(request_id, model=MODEL, **options)
        await self.append(request_id, RequestAccepted(spec=spec), traceparent)
        return spec

    async def cancel(self, request_id: str) -> str:
        scope = CancelScope(kind=CancelScopeKind.REQUEST, target_id=request_id)
        return await self.append(request_id, RequestCancelRequested(scope=scope, reason="user"))

    async def until_decided(self, event_id: str) -> None:
        """Wait until the one that leads has decided on an event."""
        deadline = time.monotonic() + WAIT_S
        while event_id not in [
            event.payload.input_event_id
            for event in await self.shard_events()
            if event.type == "SchedulerDecided"
        ]:
            assert time.monotonic() < deadline, "nobody has decided on it"
            await asyncio.sleep(0.01)

    async def history(self, request_id: str) -> list[Event]:
        return [event_of(e) for e in await self.store.read_stream(stream_of(request_id))]

    async def types(self, request_id: str) -> list[str]:
        return [event.type for event in await self.history(request_id)]

    async def until_type(self, request_id: str, kind: str) -> None:
        """Wait for an event of a type in the request's stream."""
        deadline = time.monotonic() + WAIT_S
        while kind not in (types := await self.types(request_id)):
            assert time.monotonic() < deadline, types
            await asyncio.sleep(0.01)

    async def ended(self, request_id: str, *, within_s: float = WAIT_S) -> Event:
        """Wait for the request's terminal event; there is exactly one, and it is the last."""
        deadline = time.monotonic() + within_s
        while True:
            history = await self.history(request_id)
            terminal = [event for event in history if event.type in TERMINAL]
            if terminal:
                assert len(terminal) == 1, history
                assert history[-1] is terminal[0]
                return terminal[0]
            assert time.monotonic() < deadline, [event.type for event in history]
            await asyncio.sleep(0.01)

    async def until_leads(self, address: str) -> None:
        """Wait until the scheduler of another process leads."""
        deadline = time.monotonic() + WAIT_S
        while not (await self.status(address)).leader:
            assert time.monotonic() < deadline, "it does not lead"
            await asyncio.sleep(0.01)
        self.has_led = True

    async def lease_ends(self) -> None:
        """As if the time of a leader that is dead had passed."""
        lease = await self.store.read_lease("scheduler-0")
        assert lease is not None
        await self.store.release_lease(lease)

    async def status(self, scheduler: RunningScheduler | str) -> scheduler_pb2.GetStatusResponse:
        """What a scheduler, or the one at an address, says of itself."""
        address = scheduler if isinstance(scheduler, str) else scheduler.address
        async with open_channel(address) as channel:
            stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
            return await stub.GetStatus(scheduler_pb2.GetStatusRequest(), timeout=WAIT_S)

    async def shard_events(self) -> list[Event]:
        events: list[Event] = []
        while True:
            more = await self.store.read_stream("scheduler-0", len(events))
            if not more:
                return events
            events.extend(map(event_of, more))


def _knows(scheduler: RunningScheduler, worker: ScriptedWorker) -> bool:
    leader = scheduler.shard.leader
    return leader is not None and worker.worker_id in [w.worker_id for w in leader.core.workers]


@asynccontextmanager
async def staged(dsn: str, nats_url: str) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        store = await PostgresEventStore.open(dsn)
        stack.push_async_callback(store.close)
        bus = NatsBus.open(NatsBusConfig(url=nats_url))
        stack.push_async_callback(bus.close)
        await bus.wait_connected(WAIT_S)
        wakeups = await BusWakeups.open(bus)
        appender = await stack.enter_async_context(Appender(store, wakeups))
        yield Stage(store, appender, dsn, nats_url, stack)


@pytest.fixture
async def stage(postgres_dsn: str, nats_url: str) -> AsyncIterator[Stage]:
    async with staged(postgres_dsn, nats_url) as made:
        yield made
