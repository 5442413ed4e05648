"""The removal of bytes that no record has any more: a fold over the stream of their digest.

Records share bytes: two artifacts of the same digest are one blob. Every completion of an artifact
goes to the blob's stream too, and so does the removal, each by compare-and-set: a record that is
completed and a removal that is decided see one another, whichever was first. While a removal is
under way no record may be completed with the digest; afterwards its bytes may be stored again, or
are there as before where the store did not let them go.

Invariant: no IO and no clock.
"""

from dataclasses import dataclass, replace
from typing import Final

from fastvideo.artifacts.events import ArtifactCompleted, BlobRemovalDecided, BlobRemoved
from fastvideo.errors import CorruptLog

STREAM_PREFIX: Final = "blob-"

BlobEvent = ArtifactCompleted | BlobRemovalDecided | BlobRemoved


@dataclass(frozen=True, slots=True)
class BlobLife:
    """What a blob's stream says of its bytes; one that is not there says nothing of them."""

    # A removal was decided, and nobody has told its end.
    removing: bool = False
    # Removed, and named by no record since.
    removed: bool = False
    # Artifacts that were completed with the bytes since they were stored.
    artifact_ids: frozenset[str] = frozenset()


def stream_of(digest: str) -> str:
    """The stream of the bytes of a digest."""
    return f"{STREAM_PREFIX}{digest}"


def evolve(life: BlobLife, event: BlobEvent) -> BlobLife:
    """The blob after an event. Raises CorruptLog when the event cannot follow."""
    if isinstance(event, BlobRemoved):
        if not life.removing:
            raise CorruptLog("BlobRemoved without BlobRemovalDecided", subject=event.digest)
        return replace(life, removing=False) if event.refused else BlobLife(removed=True)
    if life.removing:
        digest = event.record.digest if isinstance(event, ArtifactCompleted) else event.digest
        raise CorruptLog(f"{type(event).__name__} while the bytes are removed", subject=digest)
    if isinstance(event, BlobRemovalDecided):
        return replace(life, removing=True)
    return BlobLife(artifact_ids=life.artifact_ids | {event.record.artifact_id})
