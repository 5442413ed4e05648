"""A request's accepted run, read from the log: the spec, the steps and who ran them.

What the scheduler took in counts: a step that was done again after a loss is here once, as the
attempt that went on had it, and the steps before a snapshot stay those of the attempt that made
them. Works for requests that have ended, however they did, and for those that still run.

The shard's stream is read from the request's acceptance to its end, a page at a time, and no
more of it than a caller waits for.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from fastvideo.errors import CorruptLog, NotFound
from fastvideo.events.catalog import event_of, is_unknown, payload_of
from fastvideo.events.records import StoredEvent
from fastvideo.events.seeking import pages_before
from fastvideo.events.spans import span_pages
from fastvideo.events.store import EventLog
from fastvideo.replay.gently import gently
from fastvideo.replay.run_fold import RunFold
from fastvideo.replay.types import LoggedRun
from fastvideo.requests.events import RequestCompleted
from fastvideo.requests.reading import read_events
from fastvideo.requests.state import evolve, is_terminal
from fastvideo.requests.types import RequestState
from fastvideo.scheduling.events import WorkerAttached
from fastvideo.scheduling.stream import shard_stream
from fastvideo.scheduling.work import ModelState

# In the time of the request, decoded; at some 10,000 a second, what a caller waits for.
EVENTS_MAX: Final = 100_000
# Before it, for what its worker had said of itself; these are passed over without decoding.
EARLIER_EVENTS_MAX: Final = 300_000

_ATTACHED: Final = WorkerAttached.__name__


async def read_logged_run(log: EventLog, request_id: str, shard: str) -> LoggedRun:
    """What the log says of a request's accepted run.

    Raises NotFound when the log has no request of that id, FailedPrecondition with the reason
    RUN_TOO_LONG when too much happened in its time, CorruptLog for what no program reads. The
    fingerprint is empty when its worker attached too long before.
    """
    state: RequestState | None = None
    first: StoredEvent | None = None
    ended_at: datetime | None = None
    traceparent = ""
    scores: Mapping[str, float] = {}
    async for stored in read_events(log, request_id):
        event = event_of(stored)
        state = evolve(state, event)
        if first is None:
            first, traceparent = stored, event.metadata.traceparent
        if is_terminal(state):
            ended_at = ended_at or stored.recorded_at
        if isinstance(event.payload, RequestCompleted):
            scores = event.payload.scores
    if state is None or first is None:
        raise NotFound(f"request {request_id} does not exist", subject="request_id")
    fold = RunFold(request_id)
    await _fold(log, fold, shard_stream(shard), first.recorded_at, ended_at)
    attached = fold.attached
    unknown = ModelState(
        model_instance_id=fold.model_instance_id,
        model_id=state.spec.model_id,
        card_digest=state.spec.card_digest,
    )
    return LoggedRun(
        spec=state.spec,
        status=state.status,
        attempt=fold.attempt,
        instance=fold.instance or unknown,
        fingerprint=dict(attached.fingerprint) if attached is not None else {},
        steps=fold.steps,
        latents_digest=state.latents_digest or fold.latents_digest,
        behaviors=fold.behaviors,
        accesses=fold.accesses,
        traceparent=traceparent,
        original_seconds=sum(step.measured_seconds for step in fold.steps),
        scores=scores,
        artifacts=tuple(record for record in state.artifacts if record.digest),
    )


async def _fold(
    log: EventLog, fold: RunFold, stream_id: str, accepted_at: datetime, ended_at: datetime | None
) -> None:
    """Read the shard's stream between two moments of the log; None is now."""
    begin: int | None = None
    async for page in span_pages(log, stream_id, accepted_at, ended_at, EVENTS_MAX):
        begin = page[0].stream_version - 1 if begin is None else begin
        # In a thread, since others want to be answered meanwhile.
        await asyncio.to_thread(_take_page, fold, page)
        if fold.ended:
            break
    if begin is not None and fold.worker_id and fold.attached is None:
        await _find_attachment(log, fold, stream_id, begin)


def _take_page(fold: RunFold, page: Sequence[StoredEvent]) -> None:
    """Take in some events, up to the one that says that the request has ended."""
    name = fold.request_id.encode()
    for stored in gently(page):
        if name in stored.payload or stored.type in RunFold.ABOUT_WORKERS:
            _take(fold, stored)
        if fold.ended:
            return


def _take(fold: RunFold, stored: StoredEvent) -> None:
    try:
        fold.take(payload_of(stored))
    except CorruptLog as error:
        # What only a newer program knows is no part of what this one can do again.
        if not is_unknown(error):
            raise


async def _find_attachment(log: EventLog, fold: RunFold, stream_id: str, version: int) -> None:
    """The newest word of the run's worker about itself from before the run, if not too old.

    A replay promises no bits where it is unknown on what the run was made.
    """
    async for page in pages_before(log, stream_id, version):
        # Whole pages: at most one more than is allowed.
        if page and version - page[-1].stream_version >= EARLIER_EVENTS_MAX:
            return
        for attached in _attachments(reversed(page)):
            if fold.take_attachment(attached):
                return


def _attachments(page: Iterable[StoredEvent]) -> Iterable[WorkerAttached]:
    for stored in page:
        if stored.type == _ATTACHED:
            payload = payload_of(stored)
            assert isinstance(payload, WorkerAttached)
            yield payload
