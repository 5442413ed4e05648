"""Artifacts in the event log: read one, and add to its history.

An event of an artifact that belongs to a request goes to both streams, `artifact-<id>` and
`request-<id>`, in one append. Both are compared and set: no artifact event comes before the
request's first event, and none but that of its bytes' going comes after its last. A completion
goes to the stream of its digest too, which says whether the bytes are there to be named.
"""

import asyncio
from dataclasses import dataclass

from fastvideo.artifacts.events import ArtifactCompleted, ArtifactDeleted
from fastvideo.artifacts.removal import stream_of as blob_stream_of
from fastvideo.artifacts.state import (
    ArtifactCommand,
    ArtifactEvent,
    ArtifactState,
    DeleteArtifact,
    stream_of,
)
from fastvideo.artifacts.state import decide as decide_artifact
from fastvideo.artifacts.state import evolve as evolve_artifact
from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.clock import Clock, milliseconds
from fastvideo.errors import Conflict, CorruptLog, FailedPrecondition, NotFound
from fastvideo.events.appender import Appender
from fastvideo.events.catalog import new_event, payload_of
from fastvideo.events.records import AppendCommand, Fence, NewEvent, StreamAppend
from fastvideo.events.store import EventLog
from fastvideo.events.types import EventMetadata
from fastvideo.ids import new_id
from fastvideo.requests.reading import read_request
from fastvideo.requests.state import is_terminal
from fastvideo.requests.state import stream_of as request_stream_of
from fastvideo.telemetry.tracing import current_traceparent
from fastvideo.version import program_version
from fastvideo_artifacts.blob_uses import BlobUses
from fastvideo_artifacts.owners import is_of

# Progress of the same request is written meanwhile; each try sees newer versions.
TRIES_MAX = 50
RETRY_S = 0.005
EVENTS_PER_READ = 500


@dataclass(frozen=True, slots=True)
class Known:
    """An artifact as the log has it, and the version of its stream."""

    state: ArtifactState | None
    version: int


class ArtifactHistory:
    """Reads and writes artifacts' streams."""

    def __init__(self, log: EventLog, appender: Appender, uses: BlobUses, clock: Clock) -> None:
        self._log = log
        self._uses = uses
        self._appender = appender
        self._clock = clock

    async def read(self, artifact_id: str) -> Known:
        """The artifact as it stands. Raises CorruptLog when its stream breaks its rules."""
        state: ArtifactState | None = None
        version = 0
        while True:
            page = await self._log.read_stream(stream_of(artifact_id), version, EVENTS_PER_READ)
            for stored in page:
                payload = payload_of(stored)
                if not isinstance(payload, ArtifactEvent):
                    raise CorruptLog(f"{stored.type} in {stored.stream_id}", subject=artifact_id)
                state = evolve_artifact(state, payload)
                version = stored.stream_version
            if len(page) < EVENTS_PER_READ:
                return Known(state, version)

    async def completed_of(
        self, request_id: str, tenant_id: str | None = None
    ) -> tuple[ArtifactRecord, ...]:
        """The completed artifacts of a request, of a tenant's if one is given, oldest first.

        Raises NotFound.
        """
        request = await read_request(self._log, request_id)
        if (
            request is None
            or not is_of(tenant_id, request.spec.tenant_id)
            or (tenant_id is not None and request.deleted_at is not None)
        ):
            raise NotFound(f"request {request_id} does not exist", subject=request_id)
        return tuple(record for record in request.artifacts if record.completed_at is not None)

    async def delete(self, artifact_id: str, reason: str, fence: Fence | None = None) -> None:
        """Give up an artifact's bytes; nothing happens when that was done. Raises as `apply`."""
        state = (await self.read(artifact_id)).state
        if state is not None:
            command = DeleteArtifact(reason=reason, at=self._clock.now())
            await self.apply(state.record, command, fence)

    async def apply(
        self, artifact: ArtifactRecord, command: ArtifactCommand, fence: Fence | None = None
    ) -> ArtifactState:
        """Decide on the command and append what follows; the artifact after that.

        `artifact` says what the command is about. Raises what `decide` raises, NotFound for a
        request that does not exist, FailedPrecondition once the request has ended, Unavailable
        when the bytes are being removed, and Conflict when other writers win every time.
        """
        for _ in range(TRIES_MAX):
            known = await self.read(artifact.artifact_id)
            events = decide_artifact(known.state, command)
            state = known.state
            for event in events:
                state = evolve_artifact(state, event)
            assert state is not None  # A command either creates or finds the artifact.
            if not events:
                return state
            try:
                await self._appender.append(await self._command(artifact, known, events, fence))
            except Conflict:
                await asyncio.sleep(RETRY_S)
                continue
            return state
        raise Conflict(
            f"artifact {artifact.artifact_id} has too many writers", subject=artifact.artifact_id
        )

    async def _command(
        self,
        artifact: ArtifactRecord,
        known: Known,
        events: tuple[ArtifactEvent, ...],
        fence: Fence | None,
    ) -> AppendCommand:
        appends = [
            StreamAppend(
                stream_of(artifact.artifact_id), self._new_events(artifact, events), known.version
            )
        ]
        request_id = artifact.producer.request_id
        if request_id:
            gone = isinstance(events[0], ArtifactDeleted)
            appends.append(
                StreamAppend(
                    request_stream_of(request_id),
                    self._new_events(artifact, events),
                    await self._request_version(request_id, ended_too=gone),
                )
            )
        for event in events:
            if isinstance(event, ArtifactCompleted):
                digest = event.record.digest
                version = await self._uses.version_for_record(digest)
                told = self._new_events(artifact, (event,))
                appends.append(StreamAppend(blob_stream_of(digest), told, version))
        return AppendCommand(streams=tuple(appends), fence=fence)

    async def _request_version(self, request_id: str, *, ended_too: bool) -> int:
        """The version of a request's stream; of one that has ended only when that is asked."""
        request = await read_request(self._log, request_id)
        if request is None:
            raise NotFound(
                f"request {request_id} does not exist", subject="header.producer.request_id"
            )
        if is_terminal(request) and not ended_too:
            raise FailedPrecondition(
                f"request {request_id} has ended as {request.status.value}",
                reason="REQUEST_ENDED",
                subject=request_id,
            )
        return request.last_sequence

    def _new_events(
        self, artifact: ArtifactRecord, events: tuple[ArtifactEvent, ...]
    ) -> tuple[NewEvent, ...]:
        now = self._clock.now()
        producer = artifact.producer
        metadata = EventMetadata(
            tenant_id=artifact.tenant_id,
            request_id=producer.request_id,
            session_id=producer.session_id,
            program_id=producer.program_id,
            model_id=producer.model_id,
            model_instance_id=producer.model_instance_id,
            loop_id=producer.loop_id,
            worker_id=producer.worker_id,
            role_id=producer.role_id,
            artifact_id=artifact.artifact_id,
            traceparent=current_traceparent(),
            versions=producer.versions or {"fastvideo": program_version()},
            occurred_at=now,
        )
        return tuple(
            new_event(new_id("evt", milliseconds(now)), event, metadata) for event in events
        )
