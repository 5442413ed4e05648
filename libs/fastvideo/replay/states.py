"""State replay: what did the system know at an offset, and is what it serves the log's fold?

A request, a session or an artifact is folded up to the asked offsets. At the end of the log it is
compared with what is served of it, field by field; at an earlier place it is shown as it was.
Everything means every request, and the scheduler's core as far as it was saved.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Protocol

from google.protobuf.json_format import MessageToDict

from fastvideo import wire
from fastvideo.artifacts.state import ArtifactState
from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.errors import InvalidField, NotFound
from fastvideo.events.store import EventStore, partition_of
from fastvideo.replay.differences import differences, words
from fastvideo.replay.folds import (
    ARTIFACT,
    FOLDS,
    REQUEST,
    SESSION,
    Fold,
    Folded,
    find_fold,
    fold_stream,
)
from fastvideo.replay.scheduler_state import SchedulerSource, compare_scheduler
from fastvideo.replay.tally import Tally, Tell
from fastvideo.replay.types import Comparison, Promise, ReplayProgress, ReplayReport, ReplayRequest
from fastvideo.requests.events import RequestAccepted
from fastvideo.requests.state import STREAM_PREFIX
from fastvideo.requests.types import RequestState
from fastvideo.scheduling.stream import shard_stream
from fastvideo.sessions.types import SessionState

SCHEDULER: Final = "scheduler"

READ_MAX: Final = 1_000
TOGETHER: Final = 100
"""Requests that are compared at a time."""

TRIES_MAX: Final = 5
"""What is served may change while it is compared."""

_ACCEPTED: Final = RequestAccepted.__name__
_REQUEST_FOLD: Final = next(fold for fold in FOLDS if fold.kind == REQUEST)
_PROMISE: Final = Promise(kind="bits", reason="what is served is a fold of the log, and no more")


class Served(Protocol):
    """What the system serves now."""

    async def reached(self, heads: Mapping[int, int]) -> None:
        """Wait until the lists hold what was in the log. Raises Unavailable after too long."""
        ...

    async def requests(
        self, tenant_id: str, request_ids: tuple[str, ...]
    ) -> Mapping[str, RequestState]:
        """The rows of requests; those that the lists do not have are left out."""
        ...

    async def session(self, session_id: str, tenant_id: str) -> SessionState | None:
        """The session of a tenant as its service has it; None when that knows of none."""
        ...

    async def artifact(self, artifact_id: str, tenant_id: str) -> ArtifactRecord | None:
        """The artifact of a tenant as its service has it; None when that knows of none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSource:
    """Where states are folded from, and what is served of them."""

    log: EventStore
    served: Served
    scheduler: SchedulerSource


async def replay_states(source: StateSource, request: ReplayRequest, tell: Tell) -> ReplayReport:
    """Fold a subject, or everything, and compare.

    Raises NotFound for what was not there at that place of the log, InvalidField for offsets that
    the log does not have, CorruptLog for what does not fold.
    """
    run = _Run(source, request, tell)
    await run.begin()
    if request.subject_id == SCHEDULER:
        await run.scheduler(needed=True)
    elif request.subject_id:
        await run.subject(request.subject_id)
    else:
        await run.everything()
    return run.report()


class _Run:
    """One replay of states."""

    def __init__(self, source: StateSource, request: ReplayRequest, tell: Tell) -> None:
        self._source = source
        self._log = source.log
        self._request = request
        self._tell = tell
        self._tally = Tally(tell, request)
        self._digests: dict[str, str] = {}
        self._headline = ""
        self._traceparent = ""
        self._begun_s = perf_counter()
        # The log's heads when the replay began.
        self._heads: Mapping[int, int] = {}

    async def begin(self) -> None:
        """Look where the log ends, and check the asked offsets."""
        self._heads = await self._log.heads()
        for partition, offset in self._request.until.items():
            head = self._heads.get(partition)
            if head is None:
                raise InvalidField(f"until[{partition}]", offset, "partitions of the log")
            if offset > head:
                raise InvalidField(f"until[{partition}]", offset, f"0 to {head}")

    @property
    def _is_past(self) -> bool:
        return any(
            offset < self._heads[partition] for partition, offset in self._request.until.items()
        )

    # -- one -----------------------------------------------------------------------------

    async def subject(self, subject_id: str) -> None:
        """One request, session or artifact."""
        fold = await find_fold(self._log, subject_id)
        if fold is None:
            raise NotFound(f"the log has nothing of {subject_id}", subject="subject_id")
        folded = await fold_stream(self._log, fold, subject_id, until=self._request.until)
        if folded is None:
            raise NotFound(
                f"{fold.kind} {subject_id} was not there yet at these offsets",
                subject="subject_id",
            )
        self._traceparent = folded.traceparent
        if self._is_past:
            self._show(fold, subject_id, folded)
            return
        await self._source.served.reached(self._heads)
        for _ in range(TRIES_MAX):
            served, folded = await self._both(fold, subject_id, _owner(folded.state))
            # What is served now may be newer than the fold by what happened in between.
            if served == _comparable(folded.state):
                break
        self._digests[fold.kind] = _digest(_comparable(folded.state))
        self._compare(fold, subject_id, folded, served, detail=_json(folded.state))
        what = f"{fold.kind} {subject_id}"
        self._headline = f"what is served of {what} " + (
            "is the fold of its stream" if not self._tally.differing else "is not its stream's fold"
        )

    async def _both(self, fold: Fold, subject_id: str, tenant_id: str) -> tuple[Any, Folded]:
        """What is served, and the fold up to where that is."""
        log, served = self._log, self._source.served
        if fold.kind == SESSION:
            state: Any = await served.session(subject_id, tenant_id)
        elif fold.kind == ARTIFACT:
            state = await served.artifact(subject_id, tenant_id)
        else:
            return await self._request_row(subject_id)
        folded = await fold_stream(log, fold, subject_id, until={})
        assert folded is not None
        return state, folded

    async def _request_row(self, request_id: str) -> tuple[RequestState | None, Folded]:
        folded = await fold_stream(self._log, _REQUEST_FOLD, request_id, until={})
        assert folded is not None
        rows = await self._source.served.requests(folded.state.spec.tenant_id, (request_id,))
        return await self._beside(rows.get(request_id), folded)

    async def _beside(
        self, row: RequestState | None, folded: Folded
    ) -> tuple[RequestState | None, Folded]:
        """A row, and the fold up to the row's own sequence number."""
        if row is None or row.last_sequence == folded.version:
            return row, folded
        again = await fold_stream(
            self._log,
            _REQUEST_FOLD,
            folded.state.spec.request_id,
            until={},
            version_max=row.last_sequence,
        )
        return row, again or folded

    def _show(self, fold: Fold, subject_id: str, folded: Folded) -> None:
        """The state at an earlier place, which nothing serves any more."""
        self._digests[fold.kind] = _digest(_comparable(folded.state))
        self._tally.add(
            Comparison(
                subject=f"{fold.kind} {subject_id}",
                equal=True,
                event_id=folded.event_id,
                detail=_json(folded.state),
            )
        )
        place = f"after event {folded.version} of its stream"
        self._headline = f"{fold.kind} {subject_id} as the log had it, {place}"

    def _compare(
        self, fold: Fold, subject_id: str, folded: Folded, served: Any, detail: str = ""
    ) -> None:
        expected = _comparable(folded.state)
        equal = served == expected
        comparison = Comparison(
            subject=f"{fold.kind} {subject_id}",
            equal=equal,
            expected=_digest(expected),
            found=_digest(served) if served is not None else "nothing",
            event_id=folded.event_id,
            detail=detail,
        )
        if not equal:
            comparison = _told(comparison, expected, served)
        self._tally.add(comparison)

    # -- everything ----------------------------------------------------------------------

    async def everything(self) -> None:
        """Every request that was accepted up to the offsets, then the scheduler."""
        if not self._is_past:
            await self._source.served.reached(self._heads)
        whole, rows = hashlib.sha256(), hashlib.sha256()
        some: list[str] = []
        count = 0
        async for request_id in self._accepted():
            some.append(request_id)
            if len(some) == TOGETHER:
                count += await self._requests(some, whole, rows)
                some.clear()
        count += await self._requests(some, whole, rows)
        self._digests["requests"] = whole.hexdigest()
        if self._is_past:
            self._headline = f"{count} requests as the log had them"
            return
        self._digests["requests served"] = rows.hexdigest()
        await self.scheduler(needed=False)
        differing = self._tally.differing
        self._headline = (
            f"what is served of {count} requests is the fold of the log"
            if not differing
            else f"{differing} of {self._tally.compared} things served are not the log's fold"
        )

    async def _accepted(self) -> AsyncIterator[str]:
        """The requests that were accepted up to the offsets, partition by partition."""
        ends = {p: self._request.until.get(p, head) for p, head in self._heads.items()}
        total, before = sum(ends.values()), 0
        for partition, end in ends.items():
            cursor = 0
            while cursor < end:
                limit = min(READ_MAX, end - cursor)
                page = await self._log.read_partition(partition, cursor, limit)
                if not page:
                    break
                for stored in page:
                    if stored.type == _ACCEPTED:
                        yield stored.stream_id.removeprefix(STREAM_PREFIX)
                cursor = page[-1].offset
                self._tell(ReplayProgress(done=before + cursor, total=total, message="requests"))
            before += end

    async def _requests(self, request_ids: list[str], whole: Any, rows: Any) -> int:
        """Fold and compare some requests; gives how many there are."""
        folds: dict[str, Folded] = {}
        for request_id in request_ids:
            folded = await fold_stream(
                self._log, _REQUEST_FOLD, request_id, until=self._request.until
            )
            if folded is not None:
                folds[request_id] = folded
        if self._is_past:
            for folded in folds.values():
                whole.update(wire.encode(folded.state))
            return len(folds)
        served = await self._rows(folds)
        for request_id, folded in folds.items():
            row, folded = await self._beside(served.get(request_id), folded)
            whole.update(wire.encode(folded.state))
            rows.update(wire.encode(row) if row is not None else b"")
            self._compare(_REQUEST_FOLD, request_id, folded, row)
        return len(folds)

    async def _rows(self, folds: Mapping[str, Folded]) -> Mapping[str, RequestState]:
        by_tenant: dict[str, list[str]] = {}
        for request_id, folded in folds.items():
            by_tenant.setdefault(folded.state.spec.tenant_id, []).append(request_id)
        found: dict[str, RequestState] = {}
        for tenant_id, request_ids in by_tenant.items():
            found.update(await self._source.served.requests(tenant_id, tuple(request_ids)))
        return found

    # -- the scheduler -------------------------------------------------------------------

    async def scheduler(self, *, needed: bool) -> None:
        """The scheduler's core, against what a leader saved of it last; asked for, it is shown."""
        if needed:
            self._check_partition()
        compared = await compare_scheduler(
            self._source.scheduler,
            self._log,
            self._request.until,
            self._heads,
            self._tell,
            show=needed,
        )
        if compared is None:
            if needed:
                raise NotFound("the scheduler has decided nothing yet", subject="subject_id")
            return
        self._digests["scheduler"] = compared.digest
        if compared.comparison is not None:
            self._tally.add(compared.comparison)
        for line in compared.known:
            self._tally.add(line)
        self._headline = compared.headline

    def _check_partition(self) -> None:
        """Offsets of other partitions say nothing of how far the scheduler was."""
        until = self._request.until
        stream = shard_stream(self._source.scheduler.shard)
        partition = partition_of(stream, self._log.partition_count)
        if until and partition not in until:
            allowed = f"an offset of partition {partition}, where the scheduler's stream is"
            raise InvalidField("until", ", ".join(map(str, until)), allowed)

    def report(self) -> ReplayReport:
        """What came of it."""
        return self._tally.report(
            promise=_PROMISE,
            equal=self._tally.differing == 0,
            headline=self._headline,
            seconds=perf_counter() - self._begun_s,
            original_seconds=0.0,
            original_traceparent=self._traceparent,
            digests=self._digests,
        )


def _comparable(state: Any) -> Any:
    """What of a state is served."""
    return state.record if isinstance(state, ArtifactState) else state


def _owner(state: Any) -> str:
    """The tenant that a session or an artifact is of."""
    tenant_id: str = getattr(_comparable(state), "tenant_id", "")
    return tenant_id


def _told(comparison: Comparison, expected: Any, found: Any) -> Comparison:
    first = next(iter(differences(expected, found)), None)
    where = f"{first.path}: " if first is not None and first.path else ""
    return Comparison(
        subject=comparison.subject,
        equal=False,
        expected=first.expected if first is not None else words(expected),
        found=first.found if first is not None else words(found),
        event_id=comparison.event_id,
        detail=f"{where}the log has {first.expected if first else ''}, "
        f"served is {first.found if first else ''}",
    )


def _digest(state: Any) -> str:
    return hashlib.sha256(wire.encode(state)).hexdigest()


def _json(state: Any) -> str:
    plain = MessageToDict(wire.to_proto(_comparable(state)), preserving_proto_field_name=True)
    return json.dumps(plain, ensure_ascii=False)
