"""The bytes behind records, as a pure fold; and what an artifact's own stream says of them."""

from datetime import timedelta

import pytest

from fastvideo.artifacts.events import (
    ArtifactCompleted,
    ArtifactDeleted,
    BlobRemovalDecided,
    BlobRemoved,
)
from fastvideo.artifacts.removal import BlobEvent, BlobLife, evolve
from fastvideo.artifacts.state import CreateArtifact, DeleteArtifact, decide
from fastvideo.artifacts.state import evolve as evolve_artifact
from fastvideo.errors import CorruptLog, FailedPrecondition
from tests.unit.artifacts.test_state import AT, DONE, RECORD, run

USED = ArtifactCompleted(record=RECORD)
DECIDED, REMOVED = BlobRemovalDecided(digest="ab"), BlobRemoved(digest="ab")
REFUSED = BlobRemoved(digest="ab", refused=True)
GO = DeleteArtifact(reason="expired", at=AT + timedelta(days=1))


def life_of(*events: BlobEvent) -> BlobLife:
    life = BlobLife()
    for event in events:
        life = evolve(life, event)
    return life


def test_bytes_are_used_then_removed_then_may_come_again() -> None:
    used = frozenset({RECORD.artifact_id})
    assert life_of(USED, USED) == BlobLife(artifact_ids=used)
    assert life_of(USED, DECIDED) == BlobLife(removing=True, artifact_ids=used)
    assert life_of(USED, DECIDED, REMOVED) == BlobLife(removed=True)
    assert life_of(USED, DECIDED, REMOVED, USED) == BlobLife(artifact_ids=used)
    # What the store does not let go is as before.
    assert life_of(USED, DECIDED, REFUSED) == BlobLife(artifact_ids=used)
    assert life_of(USED, DECIDED, REFUSED, USED, DECIDED).removing
    # Bytes that no record ever named may go, too.
    assert life_of(DECIDED, REMOVED) == BlobLife(removed=True)


@pytest.mark.parametrize(
    "events",
    [(REMOVED,), (REFUSED,), (USED, DECIDED, USED), (USED, DECIDED, DECIDED), (USED, REMOVED)],
)
def test_what_cannot_follow_is_a_corrupt_log(events: tuple[BlobEvent, ...]) -> None:
    with pytest.raises(CorruptLog):
        life_of(*events)


def test_an_artifact_gives_its_bytes_up_once_and_keeps_its_record() -> None:
    state, events = run(CreateArtifact(record=RECORD), DONE, GO, GO)
    assert state is not None
    assert [type(event) for event in events].count(ArtifactDeleted) == 1
    assert events[-1] == ArtifactDeleted(
        artifact_id="art_1",
        digest=DONE.digest,
        size_bytes=DONE.size_bytes,
        reason="expired",
        deleted_at=GO.at,
    )
    assert state.deleted
    assert (state.record.digest, state.record.deleted_at) == (DONE.digest, GO.at)


def test_what_is_not_stored_has_nothing_to_give_up() -> None:
    state, _ = run(CreateArtifact(record=RECORD))
    assert decide(state, GO) == ()
    given_up = ArtifactDeleted(artifact_id="art_1", digest="ab", deleted_at=AT)
    with pytest.raises(CorruptLog):
        evolve_artifact(state, given_up)


def test_after_that_the_same_id_begins_another_life() -> None:
    state, _ = run(CreateArtifact(record=RECORD), DONE, GO)
    with pytest.raises(FailedPrecondition, match="deleted meanwhile"):
        decide(state, DONE)
    again, events = run(
        CreateArtifact(record=RECORD), DONE, GO, CreateArtifact(record=RECORD), DONE
    )
    assert again is not None
    assert again.completed
    assert not again.deleted
    once = run(CreateArtifact(record=RECORD), DONE)[1]
    assert events == [*once, *run(CreateArtifact(record=RECORD), DONE, GO)[1][-1:], *once]
