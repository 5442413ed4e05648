"""One term of a leader: the core, fed by the log and by workers, its decisions carried out.

Every input goes through `take`, one at a time: decide, send commands, note what is to be
written. When too much waits to be written everything waits there, so that nothing new is
dispatched while the log is away.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastvideo.clock import Clock
from fastvideo.errors import FastVideoError
from fastvideo.events.appender import Appender, AppenderLimits
from fastvideo.events.catalog import TERMINAL as TERMINAL_EVENTS
from fastvideo.events.catalog import payload_of
from fastvideo.events.records import Lease, StoredEvent
from fastvideo.events.store import EventStore
from fastvideo.events.subscription import LogSubscription
from fastvideo.events.wakeups import Wakeups
from fastvideo.requests.events import RequestAccepted, RequestCancelRequested
from fastvideo.requests.state import STREAM_PREFIX
from fastvideo.scheduling.commands import PrepareLoop
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.effects import execute_batch, prepare_loop, worker_command
from fastvideo.scheduling.events import (
    AssignLoop,
    BatchExecuted,
    Decision,
    DispatchBatch,
    WorkerAttached,
    WorkerDraining,
    WorkerLost,
)
from fastvideo.scheduling.inputs import (
    CancelRequested,
    RequestSubmitted,
    SchedulerInput,
    Tick,
)
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.request_scheduler import ModelCatalog
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo.telemetry.logging import get_logger
from fastvideo_scheduler.fleet import Fleet
from fastvideo_scheduler.journal import Journal
from fastvideo_scheduler.link import LinkInput, LinkTerms, WorkerAddress, WorkerLink
from fastvideo_scheduler.provenance import WorkerReport
from fastvideo_scheduler.rebuild import LiveRecord, LowWater, accepted_record, rebuild
from fastvideo_scheduler.requests import LiveRequests

_LOG: Final = get_logger(__name__)

# What waits to be written; at the limit the scheduler waits.
JOURNAL_LIMITS: Final = AppenderLimits(
    queue_commands_max=2_000, room_timeout_s=120.0, retry_for_s=60.0
)
TICK_S: Final = 0.1
CHECKPOINT_S: Final = 2.0
# How long the end of a term waits for what is still to be written.
FLUSH_S_MAX: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderParts:
    """What a leader stands on."""

    store: EventStore
    wakeups: Wakeups
    models: ModelCatalog
    clock: Clock
    policy: SchedulingPolicy
    scheduler_id: str
    shard: str
    # Silence after which a worker counts as lost.
    worker_timeout_s: float


class Leader:
    """Leads under one lease, from `run` to its end."""

    def __init__(self, parts: LeaderParts, lease: Lease) -> None:
        self._parts = parts
        self._lease = lease
        self._clock = parts.clock
        self._appender = Appender(parts.store, parts.wakeups, JOURNAL_LIMITS)
        self._requests = LiveRequests()
        self._spans = self._requests.spans
        self._journal = Journal(self._appender, parts.shard, lease.fence, self._requests)
        # One input at a time, in the order in which they ask.
        self._turn = asyncio.Lock()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.core = SchedulerCore(parts.models, policy=parts.policy, epoch=lease.epoch)
        self.fleet = Fleet(self._link)

    @property
    def epoch(self) -> int:
        """The epoch of the lease."""
        return self._lease.epoch

    async def run(self) -> None:
        """Lead until cancelled. Raises Fenced when another leads, Unavailable when the log
        stayed away too long."""
        await self._appender.__aenter__()
        try:
            await self._journal.elected(self._parts.scheduler_id, self._clock.now())
            await _first_to_end(self._lead(), self._journal.run(), self._fail_with_inputs())
        finally:
            await self.fleet.close()
            self._spans.close()
            await self._close_appender()

    async def _lead(self) -> None:
        low_water, subscription = await self._recover()
        await _first_to_end(
            self._follow(subscription, low_water),
            self._tick(),
            self._keep_low_water(low_water),
        )

    # -- inputs --------------------------------------------------------------------------

    async def take(
        self,
        event: SchedulerInput,
        *,
        report: WorkerReport | None = None,
        event_id: str = "",
    ) -> None:
        """Decide on an input and carry the decisions out. An error ends the term."""
        try:
            async with self._turn:
                await self._journal.room()
                now = self._clock.now()
                decisions = self.core.decide(event, now)
                self._carry_out(decisions)
                self._journal.note(decisions, now, report=report, event_id=event_id)
        except Exception as error:
            if not self._failed.done():
                self._failed.set_exception(error)
            raise

    async def _take_report(self, event: LinkInput) -> None:
        """What a worker's link tells."""
        if isinstance(event, WorkerAttached):
            _LOG.info("worker attached", worker_id=event.worker_id, address=event.address)
        await self.take(event, report=None if isinstance(event, WorkerDraining) else event)
        if isinstance(event, BatchExecuted):
            self._spans.end_batch(event)
        elif isinstance(event, WorkerLost):
            self._spans.lose_worker(event.worker_id)

    async def _take_request(self, record: LiveRecord) -> None:
        spec = record.spec
        if self._requests.spec(spec.request_id) is not None:
            return
        self._requests.begin(spec, record.traceparent)
        submitted = RequestSubmitted(
            spec=spec,
            offset=record.offset,
            accepted_at=record.accepted_at,
            attempts=record.attempts,
            progress=record.progress,
            started_at=record.started_at,
        )
        await self.take(submitted, event_id=record.event_id)

    async def _take_cancel(
        self, request_id: str, asked: RequestCancelRequested, event_id: str
    ) -> None:
        scope = asked.scope
        if scope.kind is CancelScopeKind.SESSION:
            # One event a request: the gateway resolves a session's.
            scope = CancelScope(kind=CancelScopeKind.REQUEST, target_id=request_id)
        await self.take(CancelRequested(scope=scope, reason=asked.reason), event_id=event_id)

    # -- decisions -----------------------------------------------------------------------

    def _carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            match decision:
                case AssignLoop():
                    self.fleet.send(decision.worker_id, self._prepare(decision))
                case DispatchBatch():
                    traceparent = self._spans.begin_batch(decision)
                    self.fleet.send(decision.worker_id, execute_batch(decision, traceparent))
                case _:
                    told = worker_command(decision)
                    if told is not None:
                        self.fleet.send(*told)

    def _prepare(self, decision: AssignLoop) -> PrepareLoop:
        request_id = decision.loop.request_id
        return prepare_loop(
            decision,
            self._requests.specs[request_id],
            self.core.loop_inputs(decision.loop),
            self._requests.traceparent(request_id),
        )

    # -- the log -------------------------------------------------------------------------

    async def _recover(self) -> tuple[LowWater, LogSubscription]:
        """Take over what lives in the log."""
        marks = await self._parts.store.load_checkpoint(self._checkpoint)
        found = await rebuild(self._parts.store, marks)
        _LOG.info("leading", epoch=self.epoch, live_requests=len(found.live))
        for record in found.live:
            await self._take_request(record)
            for event_id, asked in record.cancels:
                await self._take_cancel(record.spec.request_id, asked, event_id)
        subscription = LogSubscription(self._parts.store, found.cursors, self._parts.wakeups)
        return LowWater(found.cursors, found.live), subscription

    async def _follow(self, subscription: LogSubscription, low_water: LowWater) -> None:
        async for stored in subscription:
            await self._read(stored, low_water)
            low_water.read(stored.partition, stored.offset)

    async def _read(self, stored: StoredEvent, low_water: LowWater) -> None:
        request_id = stored.stream_id.removeprefix(STREAM_PREFIX)
        if stored.type == RequestAccepted.__name__:
            record = accepted_record(stored)
            low_water.accepted(record.spec.request_id, stored.partition, stored.offset)
            await self._take_request(record)
        elif stored.type == RequestCancelRequested.__name__:
            payload = payload_of(stored)
            assert isinstance(payload, RequestCancelRequested)
            await self._take_cancel(request_id, payload, stored.event_id)
        elif stored.type in TERMINAL_EVENTS:
            low_water.ended(request_id, stored.partition)

    async def _keep_low_water(self, low_water: LowWater) -> None:
        saved = dict(low_water.marks)
        while True:
            await asyncio.sleep(CHECKPOINT_S)
            for partition, mark in low_water.marks.items():
                if mark != saved[partition]:
                    await self._parts.store.save_checkpoint(
                        self._checkpoint, partition, mark, self._lease.fence
                    )
                    saved[partition] = mark

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            deadline = self.core.next_deadline()
            if deadline is not None and deadline <= self._clock.now():
                await self.take(Tick())

    async def _fail_with_inputs(self) -> None:
        """Raise what an input raised, whoever brought it."""
        await asyncio.shield(self._failed)

    async def _close_appender(self) -> None:
        try:
            async with asyncio.timeout(FLUSH_S_MAX):
                await self._journal.settle()
                await self._appender.__aexit__(asyncio.CancelledError, None, None)
        except (FastVideoError, TimeoutError) as error:
            _LOG.warning("the end of the term is not written", error=str(error))

    @property
    def _checkpoint(self) -> str:
        return f"scheduler-{self._parts.shard}"

    def _link(self, worker: WorkerAddress) -> WorkerLink:
        terms = LinkTerms(self._parts.scheduler_id, self.epoch, self._parts.worker_timeout_s)
        return WorkerLink(worker, terms, self._take_report, self._clock)


async def _first_to_end(*works: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends, end the others, and raise what it raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
