"""One term of a leader: the core, fed by the log and by workers, its decisions carried out.

Every input goes through `take`, one at a time: decide, send commands, note what is to be
written. When too much waits to be written everything waits there, so that nothing new is
dispatched while the log is away.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fastvideo.clock import Clock
from fastvideo.deployment.scheduling_policy import policy_document
from fastvideo.errors import FastVideoError
from fastvideo.events.appender import Appender, AppenderLimits
from fastvideo.events.catalog import TERMINAL as TERMINAL_EVENTS
from fastvideo.events.catalog import check_known, payload_of
from fastvideo.events.records import Lease, Snapshot, StoredEvent
from fastvideo.events.store import EventStore
from fastvideo.events.subscription import LogSubscription, PollLimits
from fastvideo.events.wakeups import Wakeups
from fastvideo.replay.live_records import (
    LiveRecord,
    accepted_record,
    cancel_requested,
    submitted,
)
from fastvideo.replay.saved_term import SavedTerm
from fastvideo.requests.events import RequestAccepted, RequestCancelRequested
from fastvideo.requests.state import STREAM_PREFIX
from fastvideo.rpc.tls import ClientTls
from fastvideo.scheduling.commands import PrepareLoop
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.effects import execute_batch, prepare_loop, worker_command
from fastvideo.scheduling.events import (
    AssignLoop,
    BatchExecuted,
    Decision,
    DispatchBatch,
    LeaderElected,
    LoopPrepared,
    WorkerAttached,
    WorkerLost,
    WorkerReattached,
)
from fastvideo.scheduling.inputs import SchedulerInput, Tick
from fastvideo.scheduling.notes import take_notes
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.request_scheduler import ModelCatalog
from fastvideo.scheduling.stream import shard_stream
from fastvideo.scheduling.traces import TraceNote, WeightsChanged
from fastvideo.telemetry.logging import get_logger
from fastvideo.version import program_version
from fastvideo_scheduler.fleet import Fleet
from fastvideo_scheduler.journal import Journal
from fastvideo_scheduler.link import Committed, LinkInput, LinkTerms, WorkerLink
from fastvideo_scheduler.meters import Meters
from fastvideo_scheduler.provenance import Report
from fastvideo_scheduler.rebuild import LowWater
from fastvideo_scheduler.recovery import RecoverySource, acceptance_of, recover
from fastvideo_scheduler.requests import LiveRequests
from fastvideo_scheduler.stream import WorkerAddress
from fastvideo_scheduler.together import first_to_end
from fastvideo_scheduler.weights_log import WeightsLog

_LOG: Final = get_logger(__name__)

# What waits to be written; at the limit the scheduler waits.
JOURNAL_LIMITS: Final = AppenderLimits(
    queue_commands_max=2_000, room_timeout_s=120.0, retry_for_s=60.0
)
TICK_S: Final = 0.1
CHECKPOINT_S: Final = 2.0
SNAPSHOT_S: Final = 2.0
# Share of the time in which the core may stand still to be copied.
SNAPSHOT_SHARE_MAX: Final = 0.02
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
    # Model id to the content digest of its card.
    cards: Mapping[str, str] = field(default_factory=dict)
    # How the log is polled.
    polling: PollLimits | None = None
    # How workers are dialled; None is in the clear.
    tls: ClientTls | None = None


class StoredInput(NamedTuple):
    """Where the log has an input."""

    event_id: str
    partition: int
    offset: int


class Leader:
    """Leads under one lease, from `run` to its end."""

    def __init__(self, parts: LeaderParts, lease: Lease) -> None:
        self._parts = parts
        self._lease = lease
        self._clock = parts.clock
        self._appender = Appender(parts.store, parts.wakeups, JOURNAL_LIMITS)
        self._requests = LiveRequests()
        self._spans = self._requests.spans
        self._meters = Meters(self._requests, tuple(parts.cards))
        self._weights = WeightsLog(parts.store)
        self._journal = Journal(self._appender, parts.shard, lease.fence, self._requests)
        # One input at a time, in the order in which they ask.
        self._turn = asyncio.Lock()
        self._low_water: LowWater | None = None
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A part of the state until `_take_over` has put what the log says in its place.
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
            await first_to_end(self._lead(), self._journal.run(), self._fail_with_inputs())
        finally:
            await self.fleet.close()
            self._spans.close()
            await self._close_appender()

    async def _lead(self) -> None:
        subscription = await self._take_over()
        await first_to_end(
            self._follow(subscription),
            self._tick(),
            self._keep_low_water(),
            self._keep_snapshots(),
        )

    # -- inputs --------------------------------------------------------------------------

    async def take(
        self,
        event: SchedulerInput,
        *,
        report: Report | None = None,
        source: StoredInput | None = None,
        traces: Sequence[TraceNote] = (),
        weights: Sequence[WeightsChanged] = (),
        committed: Committed | None = None,
    ) -> None:
        """Decide on an input and carry the decisions out. An error ends the term.

        An input that is no event of the log yet is its own `report`; of one that is, `source`
        says where.
        """
        try:
            async with self._turn:
                await self._journal.room()
                now = self._clock.now()
                decisions = self.core.decide(event, now)
                if isinstance(event, WorkerAttached | WorkerReattached):
                    self.fleet.open(event.worker_id)
                self._carry_out(decisions)
                committed = self._meters.counting(event, decisions, committed)
                self._journal.note(
                    decisions,
                    now,
                    report=report,
                    event_id=source.event_id if source is not None else "",
                    traces=traces,
                    weights=weights,
                    committed=committed,
                )
                if source is not None and self._low_water is not None:
                    self._low_water.read(source.partition, source.offset)
        except Exception as error:
            self._fail(error)
            raise

    async def _take_report(self, event: LinkInput, committed: Committed) -> None:
        """What a worker's link tells."""
        traces: Sequence[TraceNote] = ()
        weights: Sequence[WeightsChanged] = ()
        if isinstance(event, WorkerAttached):
            _LOG.info("worker attached", worker_id=event.worker_id, address=event.address)
            weights = await self._changed_weights(event)
        if isinstance(event, BatchExecuted | LoopPrepared):
            # The core decides on what the log will have, so that it decides the same again.
            event, traces = take_notes(event)
        await self.take(event, report=event, traces=traces, weights=weights, committed=committed)
        # What the worker waits for goes out now, and the rest after it.
        await asyncio.sleep(0)
        if isinstance(event, BatchExecuted):
            self._spans.end_batch(event)
        elif isinstance(event, WorkerLost):
            self._spans.lose_worker(event.worker_id)

    async def _changed_weights(self, attached: WorkerAttached) -> Sequence[WeightsChanged]:
        """What the worker changes of what the log knows. An error ends the term."""
        served = {instance.model_id for instance in attached.instances}
        try:
            await self._weights.read(served | set(self._parts.cards))
        except Exception as error:
            self._fail(error)
            raise
        return self._weights.take(attached)

    async def _take_request(self, record: LiveRecord) -> None:
        spec = record.spec
        if self._requests.spec(spec.request_id) is not None:
            return
        self._requests.begin(spec, acceptance_of(record))
        source = StoredInput(record.event_id, record.partition, record.offset)
        await self.take(submitted(record), source=source)

    async def _take_cancel(
        self, request_id: str, asked: RequestCancelRequested, source: StoredInput
    ) -> None:
        await self.take(cancel_requested(request_id, asked), source=source)

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

    async def _take_over(self) -> LogSubscription:
        """Go on where the last leader ended, as far as the log knows."""
        parts = self._parts
        found = await recover(
            RecoverySource(
                store=parts.store, stream=self._name, models=parts.models, policy=parts.policy
            )
        )
        self.core = found.core
        self._journal.begin(found.version)
        specs = {spec.request_id: spec for spec in found.core.specs}
        for acceptance in found.acceptances:
            self._requests.begin(specs[acceptance.request_id], acceptance)
        self._journal.provenance.resume(found.core, self._clock.now())
        elected = LeaderElected(
            scheduler_id=parts.scheduler_id,
            epoch=self.epoch,
            anew=found.anew,
            policy=policy_document(parts.policy),
            cards=parts.cards,
            program_version=program_version(),
        )
        await self.take(elected, report=elected)
        _LOG.info("leading", epoch=self.epoch, anew=found.anew, live_requests=len(specs))
        records = [acceptance_of(record) for record in found.submissions]
        self._low_water = LowWater(found.cursors, [*found.acceptances, *records])
        for record in found.submissions:
            await self._take_request(record)
        for request_id, asked, event_id in found.cancels:
            # All of this was read already, so no cursor moves by it.
            await self._take_cancel(request_id, asked, StoredInput(event_id, 0, 0))
        self.fleet.start(found.core)
        # What this leader appends it knows: it reads that along with what others append.
        return LogSubscription(parts.store, found.cursors, parts.wakeups.elsewhere, parts.polling)

    async def _follow(self, subscription: LogSubscription) -> None:
        async for stored in subscription:
            await self._read(stored)
            self._mark.read(stored.partition, stored.offset)

    async def _read(self, stored: StoredEvent) -> None:
        request_id = stored.stream_id.removeprefix(STREAM_PREFIX)
        if stored.type == RequestAccepted.__name__:
            record = accepted_record(stored)
            self._mark.accepted(record.spec.request_id, stored.partition, stored.offset)
            await self._take_request(record)
        elif stored.type == RequestCancelRequested.__name__:
            payload = payload_of(stored)
            assert isinstance(payload, RequestCancelRequested)
            source = StoredInput(stored.event_id, stored.partition, stored.offset)
            await self._take_cancel(request_id, payload, source)
        elif stored.type in TERMINAL_EVENTS:
            self._mark.ended(request_id, stored.partition)
        elif stored.stream_id.startswith(STREAM_PREFIX):
            # A request of which only a newer program knows the meaning is not this one's to lead.
            check_known(stored)

    async def _keep_snapshots(self) -> None:
        """Save the term now and then, as long as something happens."""
        saved, pause_s = -1, 0.0
        log_epoch = await self._parts.store.log_epoch()
        while True:
            await asyncio.sleep(pause_s)
            pause_s = SNAPSHOT_S
            version = self._journal.version
            if version == saved:
                continue
            begun_s = self._clock.monotonic_s()
            term = SavedTerm(
                core=self.core.snapshot(),
                acceptances=self._requests.acceptances,
                cursors=self._mark.cursors,
                log_epoch=log_epoch,
            )
            # While it is taken nothing is decided: that may cost its share of the time.
            took_s = self._clock.monotonic_s() - begun_s
            pause_s = max(SNAPSHOT_S, took_s / SNAPSHOT_SHARE_MAX)
            body = await asyncio.to_thread(term.encode)
            # A snapshot must never know what the log does not.
            await self._journal.until_committed(version)
            snapshot = Snapshot(version, body)
            await self._parts.store.save_snapshot(self._name, snapshot, self._lease.fence)
            saved = version

    async def _keep_low_water(self) -> None:
        low_water = self._mark
        saved = dict(low_water.marks)
        while True:
            await asyncio.sleep(CHECKPOINT_S)
            for partition, mark in low_water.marks.items():
                if mark != saved[partition]:
                    await self._parts.store.save_checkpoint(
                        self._name, partition, mark, self._lease.fence
                    )
                    saved[partition] = mark

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            deadline = self.core.next_deadline()
            if deadline is not None and deadline <= self._clock.now():
                await self.take(Tick())

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

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
    def _name(self) -> str:
        """Of the shard's stream, its checkpoint and its snapshots."""
        return shard_stream(self._parts.shard)

    @property
    def read_to(self) -> Mapping[int, int]:
        """By partition, the offset up to which the log was read."""
        return self._low_water.cursors if self._low_water is not None else {}

    @property
    def _mark(self) -> LowWater:
        """How far the log was read."""
        assert self._low_water is not None
        return self._low_water

    def _link(self, worker: WorkerAddress, reported: int | None) -> WorkerLink:
        parts = self._parts
        terms = LinkTerms(parts.scheduler_id, self.epoch, parts.worker_timeout_s, parts.tls)
        return WorkerLink(worker, terms, self._take_report, self._clock, reported=reported)
