"""A request's accepted run, read from the log: the spec, the steps and who ran them.

What the scheduler took in counts: a step that was done again after a loss is here once, as the
attempt that went on had it, and the steps before a snapshot stay those of the attempt that made
them. Works for requests that have ended, however they did, and for those that still run.

The shard's stream is read from the request's acceptance to its end, a page at a time.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from fastvideo.errors import CorruptLog, NotFound
from fastvideo.events.catalog import event_of, is_unknown, payload_of
from fastvideo.events.records import StoredEvent
from fastvideo.events.seeking import pages_after, pages_before, version_before
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

LEAD_IN: Final = timedelta(seconds=1)
"""Clocks of the log and of its writers may differ by so much."""

LEAD_OUT: Final = timedelta(seconds=10)
"""Later than this after its end the shard says nothing of a request."""

_ATTACHED: Final = WorkerAttached.__name__


async def read_logged_run(log: EventLog, request_id: str, shard: str) -> LoggedRun:
    """What the log says of a request's accepted run.

    Raises NotFound when the log has no request of that id, CorruptLog for what no program reads.
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
    begin = await version_before(log, stream_id, accepted_at - LEAD_IN)
    latest = ended_at + LEAD_OUT if ended_at is not None else None
    async for page in pages_after(log, stream_id, begin):
        # In a thread, since others want to be answered meanwhile.
        await asyncio.to_thread(_take_page, fold, page)
        if fold.ended or (latest is not None and page[-1].recorded_at > latest):
            break
    if fold.worker_id and fold.attached is None:
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
    """The newest word of the run's worker about itself from before the run."""
    async for page in pages_before(log, stream_id, version):
        for attached in _attachments(reversed(page)):
            if fold.take_attachment(attached):
                return


def _attachments(page: Iterable[StoredEvent]) -> Iterable[WorkerAttached]:
    for stored in page:
        if stored.type == _ATTACHED:
            payload = payload_of(stored)
            assert isinstance(payload, WorkerAttached)
            yield payload
