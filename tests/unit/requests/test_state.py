"""The fold of a request's stream."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastvideo.artifacts.events import (
    ArtifactCompleted,
    ArtifactCreated,
    ArtifactUpdated,
    MediaCompleted,
)
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord, Producer
from fastvideo.errors import CorruptLog
from fastvideo.events.catalog import NAMES
from fastvideo.events.types import Event, EventMetadata, EventPayload
from fastvideo.requests.events import (
    RequestAccepted,
    RequestCancelled,
    RequestCancelRequested,
    RequestCompleted,
    RequestFailed,
    RequestProgressed,
    RequestQueued,
    RequestStarted,
)
from fastvideo.requests.state import evolve, fold, is_terminal, stream_of
from fastvideo.requests.types import (
    ErrorDetail,
    OutputSpec,
    RequestKind,
    RequestMetrics,
    RequestSpec,
    RequestState,
    RequestStatus,
    SamplingParams,
)
from fastvideo.scheduling.work import CancelScope, CancelScopeKind

START = datetime.fromisoformat("2026-01-02T03:04:05+00:00")

ACCEPTED = RequestAccepted(
    spec=RequestSpec(
        request_id="r", kind=RequestKind.GENERATION, sampling=SamplingParams(), outputs=OutputSpec()
    )
)
CANCEL = RequestCancelRequested(
    scope=CancelScope(kind=CancelScopeKind.REQUEST, target_id="r"), reason="user"
)
METRICS = RequestMetrics(total_seconds=2.0, units=23)
COMPLETED = RequestCompleted(artifact_ids=("a",), latents_digest="ab", metrics=METRICS)
FAILED = RequestFailed(error=ErrorDetail(reason="BOOM"), metrics=METRICS)
MEDIA_COMPLETED = MediaCompleted(artifact_id="a", stream_id="main", chunks=1, size_bytes=5)
CANCELLED = RequestCancelled(reason="user", boundary="denoise 7/20", metrics=METRICS)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def event(sequence: int, payload: EventPayload) -> Event:
    """The event at a place of the stream, which came `sequence` seconds after the start."""
    return Event(
        event_id=f"e{sequence}",
        stream_id=stream_of("r"),
        stream_version=sequence,
        type=type(payload).__name__,
        name=NAMES[type(payload).__name__],
        metadata=EventMetadata(occurred_at=at(sequence)),
        recorded_at=at(sequence),
        payload=payload,
    )


def state_of(*payloads: EventPayload) -> RequestState:
    state = fold(event(i, payload) for i, payload in enumerate((ACCEPTED, *payloads), start=1))
    assert state is not None
    return state


def record(digest: str = "", size: int = 0) -> ArtifactRecord:
    return ArtifactRecord(
        artifact_id="a",
        kind=ArtifactKind.VIDEO,
        digest=digest,
        size_bytes=size,
        producer=Producer(),
        created_at=START,
    )


@pytest.mark.row("EVT-01")
def test_accepted_is_first_and_once() -> None:
    state = state_of()
    assert state.status is RequestStatus.ACCEPTED
    assert (state.last_sequence, state.accepted_at) == (1, at(1))
    with pytest.raises(CorruptLog, match="begins with RequestQueued"):
        evolve(None, event(1, RequestQueued()))


@pytest.mark.parametrize("sequence", [1, 3, 9])
def test_a_gap_or_repeat_halts_the_fold(sequence: int) -> None:
    with pytest.raises(CorruptLog, match=f"goes on at version {sequence}, not at 2"):
        evolve(state_of(), event(sequence, RequestQueued()))


def test_an_undisturbed_request_runs_through_its_statuses() -> None:
    queued = state_of(RequestQueued(position=2, reason="no free window"))
    assert (queued.status, queued.queue_reason) == (RequestStatus.QUEUED, "no free window")
    running = evolve(queued, event(3, RequestStarted(attempt=1)))
    assert (running.status, running.queue_reason) == (RequestStatus.RUNNING, "")
    done = evolve(running, event(4, COMPLETED))
    assert (done.status, done.progress, done.latents_digest) == (RequestStatus.COMPLETED, 1.0, "ab")
    assert (done.started_at, done.ended_at, done.metrics) == (at(3), at(4), METRICS)


def test_a_restart_after_a_lost_worker_shows_as_queued_and_keeps_progress_and_start() -> None:
    state = state_of(
        RequestStarted(attempt=1),
        RequestProgressed(fraction=0.6),
        RequestQueued(reason="worker lost"),
    )
    assert (state.status, state.progress) == (RequestStatus.QUEUED, 0.6)
    state = evolve(state, event(5, RequestStarted(attempt=2)))
    state = evolve(state, event(6, RequestProgressed(fraction=0.1)))
    assert (state.status, state.progress, state.started_at) == (RequestStatus.RUNNING, 0.6, at(2))


def test_a_failure_carries_its_error() -> None:
    assert state_of(FAILED).error == ErrorDetail(reason="BOOM")


def test_a_cancel_is_shown_before_it_lands() -> None:
    state = state_of(RequestStarted(attempt=1), CANCEL)
    assert (state.status, state.cancel_requested) == (RequestStatus.RUNNING, True)
    assert evolve(state, event(4, CANCELLED)).status is RequestStatus.CANCELLED


@pytest.mark.parametrize("end", [COMPLETED, FAILED, CANCELLED])
@pytest.mark.parametrize(
    "late",
    [RequestQueued(), RequestStarted(), RequestProgressed(fraction=0.9), CANCEL, FAILED, COMPLETED],
)
def test_what_comes_after_the_end_changes_nothing_but_the_sequence(
    end: EventPayload, late: EventPayload
) -> None:
    ended = state_of(end)
    after = evolve(ended, event(3, late))
    assert after.last_sequence == 3
    for name in ("status", "progress", "error", "metrics", "ended_at", "cancel_requested"):
        assert getattr(after, name) == getattr(ended, name)


def test_an_artifact_grows_completes_and_is_listed_once() -> None:
    state = state_of(
        ArtifactCreated(record=record()), ArtifactUpdated(artifact_id="a", size_bytes=10)
    )
    assert state.artifacts == (record(size=10),)
    done = ArtifactCompleted(record=record("d", 20))
    again = ArtifactCreated(record=record())
    late: tuple[EventPayload, ...] = (done, again, ArtifactUpdated(artifact_id="a"))
    for sequence, payload in enumerate(late, start=4):
        state = evolve(state, event(sequence, payload))
    assert state.artifacts == (record("d", 20),)


def test_an_artifact_that_comes_after_a_cancel_is_still_listed() -> None:
    state = state_of(CANCELLED, ArtifactCompleted(record=record("d", 20)))
    assert state.artifacts == (record("d", 20),)
    assert state.status is RequestStatus.CANCELLED


def test_media_events_only_move_the_sequence() -> None:
    assert state_of(MEDIA_COMPLETED).last_sequence == 2


PAYLOADS: dict[str, Callable[[float], EventPayload]] = {
    "queued": lambda _: RequestQueued(reason="full"),
    "started": lambda _: RequestStarted(attempt=1),
    "progressed": lambda fraction: RequestProgressed(fraction=fraction),
    "cancel": lambda _: CANCEL,
    "created": lambda _: ArtifactCreated(record=record()),
    "stored": lambda _: ArtifactCompleted(record=record("d", 5)),
    "completed": lambda _: COMPLETED,
    "failed": lambda _: FAILED,
    "cancelled": lambda _: CANCELLED,
}


@given(st.lists(st.tuples(st.sampled_from(sorted(PAYLOADS)), st.floats(0, 2)), max_size=30))
def test_in_any_history_progress_rises_and_the_end_is_final(
    steps: Sequence[tuple[str, float]],
) -> None:
    state = state_of()
    for sequence, (name, fraction) in enumerate(steps, start=2):
        before, state = state, evolve(state, event(sequence, PAYLOADS[name](fraction)))
        assert before.progress <= state.progress <= 1.0
        assert state.last_sequence == sequence
        if is_terminal(before):
            assert state.status is before.status
            assert state.ended_at == before.ended_at
