"""How a new leader comes to know what its predecessor knew.

The newest saved term that can be read, then the shard's stream from there on: each input with
the decisions that were made of it. Inputs that are events of requests are named in the stream by
id and read from the log itself. Without a saved term the stream is folded from the last term that
began anew (`unsaved_term`). Where that fails too, or is too far back, live requests are found in
the log and begin again (`rebuild`).
"""

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Final

from fastvideo.errors import CorruptLog, FailedPrecondition, FastVideoError, Unavailable
from fastvideo.events.catalog import TERMINAL, check_known, is_unknown, payload_of
from fastvideo.events.records import Snapshot, StoredEvent
from fastvideo.events.store import EventStore
from fastvideo.replay.live_records import (
    LiveRecord,
    accepted_record,
    cancel_requested,
    fold_record,
    had_gone_before,
    submitted,
)
from fastvideo.replay.saved_term import Acceptance, SavedTerm
from fastvideo.replay.shard_entries import EntryReader, missing_input
from fastvideo.requests.events import RequestAccepted, RequestCancelRequested
from fastvideo.requests.state import STREAM_PREFIX
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.events import LeaderElected
from fastvideo.scheduling.inputs import SchedulerInput
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.request_scheduler import ModelCatalog
from fastvideo.telemetry.logging import get_logger
from fastvideo_scheduler.rebuild import rebuild
from fastvideo_scheduler.unsaved_term import last_begun_anew

_LOG: Final = get_logger(__name__)

READ_MAX: Final = 1_000
# Events of the shard's stream behind a saved term; more mean that nobody saved for long.
FOLD_EVENTS_MAX: Final = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What the new leader begins with."""

    core: SchedulerCore
    # The version of the shard's stream.
    version: int
    # The core knows of nothing: live requests begin again.
    anew: bool
    # Requests that the core has, as the log has them.
    acceptances: tuple[Acceptance, ...] = ()
    # Requests and cancellations that the core has not taken in, in order.
    submissions: tuple[LiveRecord, ...] = ()
    cancels: tuple[tuple[str, RequestCancelRequested, str], ...] = ()
    # By partition, the offset up to which the log was read.
    cursors: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySource:
    """Where the new leader finds it, and the rules under which it will decide."""

    store: EventStore
    # The shard's stream, which is also the name of its saved terms and its checkpoint.
    stream: str
    models: ModelCatalog
    policy: SchedulingPolicy


async def recover(source: RecoverySource) -> Recovered:
    """Find out what the shard's last leader knew.

    Raises Unavailable when the log is away, CorruptLog when a newer program wrote to it.
    """
    for saved in await source.store.load_snapshots(source.stream):
        found = await _or_none(_fold_saved(source, saved), f"saved term {saved.version}")
        if found is not None:
            return found
    found = await _or_none(_fold_unsaved(source), "the shard's stream")
    return found or await _begin_anew(source)


async def _or_none(fold: Coroutine[None, None, Recovered | None], of: str) -> Recovered | None:
    """What was folded, or None when it cannot be: whatever it holds, the shard must be led."""
    try:
        return await fold
    except Unavailable:
        raise
    except FastVideoError as error:
        if is_unknown(error):
            # A newer program led: this one must not decide over what it cannot read.
            raise
        _LOG.warning("a past term is of no use", of=of, error=error.message)
    except Exception as error:  # noqa: BLE001 - see above
        _LOG.error("a past term is inconsistent", of=of, exc_info=error)
    return None


async def _begin_anew(source: RecoverySource) -> Recovered:
    marks = await source.store.load_checkpoint(source.stream)
    found = await rebuild(source.store, marks)
    return Recovered(
        core=SchedulerCore(source.models, policy=source.policy),
        version=await source.store.stream_version(source.stream),
        anew=True,
        submissions=found.live,
        cancels=tuple(
            (record.spec.request_id, asked, event_id)
            for record in found.live
            for event_id, asked in record.cancels
        ),
        cursors=found.cursors,
    )


async def _fold_saved(source: RecoverySource, snapshot: Snapshot) -> Recovered:
    """The saved core, and what the shard's stream says since."""
    saved = SavedTerm.decode(snapshot.body)
    if await source.store.log_epoch() != saved.log_epoch:
        raise CorruptLog("the log was restored since", reason="LOG_EPOCH", subject="log_epoch")
    core = SchedulerCore.restore(source.models, source.policy, saved.core)
    found = await _read_requests(source.store, saved.cursors)
    return await _fold(source, core, found, snapshot.version, saved.acceptances)


async def _fold_unsaved(source: RecoverySource) -> Recovered | None:
    """The core of what the shard's stream says since a leader began anew; None without one."""
    if await _was_restored(source):
        return None
    begun = await last_begun_anew(source.store, source.stream)
    if begun is None:
        return None
    core = SchedulerCore(source.models, policy=source.policy)
    found = await _read_requests(source.store, {}, anew_epoch=begun.epoch)
    return await _fold(source, core, found, begun.version, ())


async def _was_restored(source: RecoverySource) -> bool:
    """Whether a saved term is of before the log was restored: workers may be ahead of the log."""
    epoch = await source.store.log_epoch()
    for snapshot in await source.store.load_snapshots(source.stream):
        try:
            if SavedTerm.log_epoch_of(snapshot.body) != epoch:
                return True
        except FailedPrecondition:
            continue
    return False


async def _fold(
    source: RecoverySource,
    core: SchedulerCore,
    found: "_Requests",
    version: int,
    acceptances: tuple[Acceptance, ...],
) -> Recovered:
    """Take in what the stream says behind a version."""
    last = await _replay(source, core, found, version)
    live = {spec.request_id for spec in core.specs}
    known = {acceptance.request_id: acceptance for acceptance in acceptances}
    known |= {name: acceptance_of(record) for name, record in found.accepted.items()}
    return Recovered(
        core=core,
        version=last,
        anew=False,
        acceptances=tuple(known[request_id] for request_id in live),
        submissions=tuple(found.untaken()),
        cancels=tuple(
            (request_id, asked, event_id)
            for event_id, (request_id, asked) in found.cancels.items()
            if event_id not in found.taken and request_id not in found.ended
        ),
        cursors=found.cursors,
    )


def acceptance_of(record: LiveRecord) -> Acceptance:
    """Where the log has the request."""
    return Acceptance(
        request_id=record.spec.request_id,
        event_id=record.event_id,
        partition=record.partition,
        offset=record.offset,
        accepted_at=record.accepted_at,
        traceparent=record.traceparent,
    )


@dataclass(slots=True)
class _Requests:
    """What the log says of requests behind a saved term's cursors."""

    # By request, in the order of the log; by event.
    accepted: dict[str, LiveRecord] = field(default_factory=dict)
    cancels: dict[str, tuple[str, RequestCancelRequested]] = field(default_factory=dict)
    inputs: dict[str, SchedulerInput] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    # Events that the stream says were taken in.
    taken: set[str] = field(default_factory=set)
    cursors: dict[int, int] = field(default_factory=dict)

    def add(self, stored: StoredEvent) -> None:
        """Take in an event of the log."""
        request_id = stored.stream_id.removeprefix(STREAM_PREFIX)
        if stored.type == RequestAccepted.__name__:
            record = accepted_record(stored)
            self.accepted[request_id] = record
            self.inputs[stored.event_id] = submitted(record)
        elif stored.type == RequestCancelRequested.__name__:
            asked = payload_of(stored)
            assert isinstance(asked, RequestCancelRequested)
            self.cancels[stored.event_id] = (request_id, asked)
            self.inputs[stored.event_id] = cancel_requested(request_id, asked)
        elif stored.type in TERMINAL:
            self.ended.add(request_id)
        elif stored.stream_id.startswith(STREAM_PREFIX):
            check_known(stored)

    def add_known(self, stored: StoredEvent) -> None:
        """Take in an event of before the term that is folded: its requests were submitted as far
        as they had come."""
        record = self.accepted.get(stored.stream_id.removeprefix(STREAM_PREFIX))
        if record is None:
            return
        live = {stored.stream_id: record}
        fold_record(live, stored)
        record = live[stored.stream_id]
        self.accepted[record.spec.request_id] = record
        self.inputs[record.event_id] = submitted(record)

    def untaken(self) -> list[LiveRecord]:
        """Live requests that nobody has taken in, by the time of acceptance."""
        records = [
            record
            for request_id, record in self.accepted.items()
            if record.event_id not in self.taken and request_id not in self.ended
        ]
        records.sort(key=lambda record: (record.accepted_at, record.partition, record.offset))
        return records


async def _read_requests(
    store: EventStore, cursors: Mapping[int, int], anew_epoch: int = 0
) -> _Requests:
    found = _Requests()
    for partition in range(store.partition_count):
        cursor = cursors.get(partition, 0)
        while events := await store.read_partition(partition, cursor, READ_MAX):
            for stored in events:
                if had_gone_before(stored, anew_epoch):
                    found.add_known(stored)
                else:
                    found.add(stored)
            cursor = events[-1].offset
        found.cursors[partition] = cursor
    return found


async def _replay(
    source: RecoverySource, core: SchedulerCore, found: _Requests, version: int
) -> int:
    """Take in the shard's stream behind a version; gives the version of its end."""
    first, reader = version, EntryReader()
    while events := await source.store.read_stream(source.stream, version, READ_MAX):
        for entry in reader.read(events):
            event = entry.event or _input(found, entry.decided.input_event_id)
            if isinstance(event, LeaderElected) and event.anew and core.epoch:
                # The term that is folded may itself have begun so.
                raise CorruptLog("a later term began anew", reason="TERM_ANEW", subject="term")
            core.replay(event, entry.decided.decisions, entry.decided.at)
            found.taken.add(entry.decided.input_event_id)
        version = events[-1].stream_version
        if version - first > FOLD_EVENTS_MAX:
            raise CorruptLog(f"more than {FOLD_EVENTS_MAX} events", reason="TOO_MANY", subject="")
    return version


def _input(found: _Requests, event_id: str) -> SchedulerInput:
    event = found.inputs.get(event_id)
    if event is None:
        raise missing_input(event_id)
    return event
