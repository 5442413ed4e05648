"""What is stored: find one artifact, read its bytes, list those of a request."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.blobs import BlobStore
from fastvideo.clock import Clock
from fastvideo.errors import FailedPrecondition, Gone, InvalidField, NotFound
from fastvideo.requests.lifetimes import DELETED, as_of, require_media
from fastvideo.requests.standing import Standings
from fastvideo.requests.types import RequestState
from fastvideo.rpc.paging import checked_page_size
from fastvideo_artifacts.history import ArtifactHistory
from fastvideo_artifacts.owners import is_of


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Some of a request's artifacts; the token asks for the rest, empty when there is none."""

    records: tuple[ArtifactRecord, ...]
    next_page_token: str


class Catalog:
    """Reads come straight from the log, so they are never behind a put, nor lost at a restart."""

    def __init__(
        self, history: ArtifactHistory, blobs: BlobStore, requests: Standings, clock: Clock
    ) -> None:
        self._history = history
        self._blobs = blobs
        self._requests = requests
        self._clock = clock

    async def find(self, artifact_id: str, tenant_id: str | None = None) -> ArtifactRecord:
        """The artifact's record; its digest is empty until it is completed.

        For a tenant only what is the tenant's exists, and not that of a deleted request. Raises
        NotFound, and FailedPrecondition when the bytes of a completed one were lost.
        """
        record, _ = await self._find(artifact_id, tenant_id)
        return record

    async def find_whole(self, artifact_id: str, tenant_id: str | None = None) -> ArtifactRecord:
        """As `find`, for its bytes.

        Raises FailedPrecondition also when the artifact is not completed yet, and Gone when it has
        expired or was deleted, whether or not the bytes are there still.
        """
        record, request = await self._find(artifact_id, tenant_id)
        if request is not None:
            require_media(as_of(request, self._clock.now()), artifact_id)
        if record.deleted_at is not None or (request is not None and request.deleted_at):
            raise Gone(f"artifact {artifact_id} was deleted", reason=DELETED, subject=artifact_id)
        if record.completed_at is None:
            raise FailedPrecondition(
                f"artifact {artifact_id} is not completed",
                reason="ARTIFACT_INCOMPLETE",
                subject=artifact_id,
            )
        return record

    async def _find(
        self, artifact_id: str, tenant_id: str | None
    ) -> tuple[ArtifactRecord, RequestState | None]:
        """The record, and the request that made it."""
        state = (await self._history.read(artifact_id)).state
        if state is None or not is_of(tenant_id, state.record.tenant_id):
            raise _unknown(artifact_id)
        record = state.record
        request_id = record.producer.request_id
        request = await self._requests.read(request_id) if request_id else None
        if tenant_id is not None and request is not None and request.deleted_at is not None:
            raise _unknown(artifact_id)
        if not state.completed or state.deleted or await self._blobs.exists(record.digest):
            return record, request
        # They may have been given up a moment ago.
        state = (await self._history.read(artifact_id)).state
        if state is None or not state.deleted:
            raise FailedPrecondition(
                f"the bytes of artifact {artifact_id} are gone from the store",
                reason="BLOB_MISSING",
                subject=artifact_id,
                attributes={"digest": record.digest},
            )
        return state.record, request

    def read(self, record: ArtifactRecord, start: int, stop: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `stop`; a stop of 0 is the end.

        Raises InvalidField for a range that the artifact does not have.
        """
        size = record.size_bytes
        if start > size:
            raise InvalidField("start", start, f"0 to {size}, the artifact's size")
        if stop and not start <= stop <= size:
            raise InvalidField("stop", stop, f"{start} to {size}, or 0 for the end")
        return self._blobs.read(record.digest, start, stop or size)

    async def list(
        self, request_id: str, page_size: int, page_token: str, tenant_id: str | None = None
    ) -> RecordPage:
        """Completed artifacts of a request in the order of their creation.

        Raises NotFound for the request, InvalidField for a page that cannot be.
        """
        size = checked_page_size(page_size)
        records = await self._history.completed_of(request_id, tenant_id)
        first = 0
        if page_token:
            ids = [record.artifact_id for record in records]
            if page_token not in ids:
                raise InvalidField("page_token", page_token, "a token of a former answer")
            first = ids.index(page_token) + 1
        page = records[first : first + size]
        more = first + len(page) < len(records)
        return RecordPage(page, page[-1].artifact_id if more else "")


def _unknown(artifact_id: str) -> NotFound:
    return NotFound(f"artifact {artifact_id} does not exist", subject=artifact_id)
