"""How long what requests make is kept, and what their fold says of it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fastvideo.artifacts.events import ArtifactCompleted, ArtifactDeleted
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord, Producer
from fastvideo.errors import Gone, InvalidField
from fastvideo.requests.events import RequestAccepted, RequestDeleted, RequestExpired
from fastvideo.requests.lifetimes import TTL_S_MAX, as_of, expiry, require_media, resolve_ttl
from fastvideo.requests.state import fold
from fastvideo.requests.types import OutputSpec, RequestStatus
from tests.unit.requests.test_state import (
    ACCEPTED,
    CANCELLED,
    COMPLETED,
    FAILED,
    at,
    event,
    state_of,
)

SHORT = RequestAccepted(spec=replace(ACCEPTED.spec, outputs=OutputSpec(ttl_s=10)))


@pytest.mark.parametrize(
    ("asked", "limit_s", "kept_s"),
    [(None, 0, None), (None, 60, 60), (5, 0, 5), (5, 60, 5), (60, 60, 60), (TTL_S_MAX, 0, None)],
)
def test_a_lifetime_is_what_is_asked_within_the_limit(
    asked: int | None, limit_s: int, kept_s: int | None
) -> None:
    assert resolve_ttl(asked, limit_s) == (asked if asked == TTL_S_MAX else kept_s)


@pytest.mark.parametrize(("asked", "limit_s"), [(0, 0), (-1, 0), (TTL_S_MAX + 1, 0), (61, 60)])
def test_a_lifetime_beyond_the_limit_is_refused_by_name(asked: int, limit_s: int) -> None:
    with pytest.raises(InvalidField) as caught:
        resolve_ttl(asked, limit_s)
    assert caught.value.field == "outputs.ttl_s"
    assert str(limit_s or TTL_S_MAX) in caught.value.allowed


def test_the_longest_lifetime_ends_in_a_year_that_there_is() -> None:
    moment = expiry(at(0), TTL_S_MAX)
    assert moment is not None
    assert moment.year < 9999


@pytest.mark.parametrize("end", [COMPLETED, FAILED, CANCELLED])
def test_a_lifetime_runs_from_the_end_whatever_that_was(end: object) -> None:
    state = fold((event(1, SHORT), event(2, end)))  # type: ignore[arg-type]
    assert state is not None
    assert state.expires_at == at(2) + timedelta(seconds=10)
    assert state_of(COMPLETED).expires_at is None


def test_what_has_passed_is_told_with_and_without_the_sweepers_event() -> None:
    state = fold((event(1, SHORT), event(2, COMPLETED)))
    assert state is not None
    assert state.expires_at is not None
    assert as_of(state, at(11.9)) == state
    require_media(as_of(state, at(11.9)), "video_id")
    passed = as_of(state, at(12))
    swept = fold([event(3, RequestExpired(expires_at=state.expires_at))], state)
    assert swept == replace(passed, last_sequence=3)
    # A sweeper whose clock is ahead has the last word.
    assert as_of(swept, at(0)) == swept
    with pytest.raises(Gone) as caught:
        require_media(passed, "video_id")
    assert (caught.value.reason, caught.value.subject) == ("MEDIA_EXPIRED", "video_id")
    assert passed.status is RequestStatus.COMPLETED


def test_a_deletion_and_what_it_gives_up_come_after_the_end() -> None:
    record = ArtifactRecord(
        artifact_id="a",
        kind=ArtifactKind.VIDEO,
        digest="ab",
        producer=Producer(request_id="r"),
        created_at=at(2),
        completed_at=at(2),
    )
    given_up = ArtifactDeleted(artifact_id="a", digest="ab", reason="deleted", deleted_at=at(9))
    state = state_of(ArtifactCompleted(record=record), COMPLETED, RequestDeleted(), given_up)
    assert state.status is RequestStatus.COMPLETED
    assert (state.ended_at, state.deleted_at) == (at(3), at(4))
    assert state.artifacts == (replace(record, deleted_at=at(9)),)
    # Nothing that comes later brings it back.
    again = fold([event(6, COMPLETED)], state)
    assert again == replace(state, last_sequence=6)
