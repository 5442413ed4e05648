"""A gRPC server that plays a given history, and cuts streams where a test says so."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fastvideo import wire
from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.api.common.v1 import request_pb2
from fastvideo.api.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord, Producer
from fastvideo.errors import InvalidField, NotFound, Unavailable
from fastvideo.events.types import Event, EventMetadata, EventPayload
from fastvideo.requests.events import RequestAccepted, RequestCompleted, RequestProgressed
from fastvideo.requests.types import (
    OutputSpec,
    RequestKind,
    RequestMetrics,
    RequestSpec,
    RequestState,
    RequestStatus,
    SamplingParams,
)
from fastvideo.rpc.server import Server, Service

AT = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = RequestSpec(
    request_id="req_1",
    kind=RequestKind.GENERATION,
    model_id="moving-digits",
    sampling=SamplingParams(width=48, height=48, num_frames=9, fps=8, steps=4, seed=7),
    outputs=OutputSpec(video=True),
)


def history(progress: int) -> list[EventPayload]:
    """Accepted, some progress, completed."""
    steps: list[EventPayload] = [
        RequestProgressed(fraction=step / progress) for step in range(1, progress + 1)
    ]
    return [RequestAccepted(spec=SPEC), *steps, RequestCompleted(metrics=RequestMetrics())]


def _set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class Script:
    """What the server plays, and what it was asked."""

    payloads: Sequence[EventPayload] = field(default_factory=lambda: history(8))
    # Each watch ends with UNAVAILABLE after so many events, the last entry for ever; 0: no cut.
    cuts: list[int] = field(default_factory=lambda: [0])
    # How many unary calls fail before one succeeds.
    unavailable: int = 0
    skip_sequence: int = 0
    # The field that every submit is refused for.
    refused: str = ""
    artifact: bytes = b""
    record: ArtifactRecord | None = None
    # Each download stops after so many bytes; 0: no cut.
    byte_cuts: list[int] = field(default_factory=lambda: [0])

    # The field and the reason that every upload is refused for.
    upload_refused: tuple[str, str] | None = None

    # A watch that has told everything goes on without a word.
    holds: bool = False
    # Submits are stored at once, and answered once it is set.
    answers: asyncio.Event = field(default_factory=_set)
    # How long an answer to `get` takes, seconds.
    slow_s: float = 0.0

    cancelled: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    watched_after: list[int] = field(default_factory=list)
    read_from: list[int] = field(default_factory=list)
    idempotency_keys: list[str] = field(default_factory=list)
    submits: list[gateway_pb2.SubmitRequestRequest] = field(default_factory=list)
    # Each upload that came whole.
    uploads: list[tuple[artifacts_pb2.PutArtifactHeader, bytes]] = field(default_factory=list)

    def take(self, cuts: list[int]) -> int:
        return cuts.pop(0) if len(cuts) > 1 else cuts[0]

    def fail_while_unavailable(self) -> None:
        if self.unavailable:
            self.unavailable -= 1
            raise Unavailable("starting")


class ScriptedGateway(gateway_pb2_grpc.GatewayServiceServicer):
    def __init__(self, script: Script) -> None:
        self._script = script

    async def SubmitRequest(
        self, request: gateway_pb2.SubmitRequestRequest, context: object
    ) -> gateway_pb2.SubmitRequestResponse:
        self._script.idempotency_keys.append(request.idempotency_key)
        self._script.submits.append(request)
        self._script.fail_while_unavailable()
        await self._script.answers.wait()
        if request.sampling.steps == 0 and request.sampling.HasField("steps"):
            raise InvalidField("sampling.steps", 0, "1 to 1000")
        if self._script.refused:
            raise InvalidField(self._script.refused, "x", "less")
        return gateway_pb2.SubmitRequestResponse(state=self._state())

    async def GetRequest(
        self, request: gateway_pb2.GetRequestRequest, context: object
    ) -> gateway_pb2.GetRequestResponse:
        self._script.fail_while_unavailable()
        await asyncio.sleep(self._script.slow_s)
        if request.request_id != SPEC.request_id:
            raise NotFound("no such request", subject=request.request_id)
        return gateway_pb2.GetRequestResponse(state=self._state())

    async def WatchRequest(
        self, request: gateway_pb2.WatchRequestRequest, context: object
    ) -> AsyncIterator[gateway_pb2.WatchRequestResponse]:
        script = self._script
        script.watched_after.append(request.after_sequence)
        cut = script.take(script.cuts)
        for sent, payload in enumerate(script.payloads[request.after_sequence :]):
            if cut and sent == cut:
                raise Unavailable("the gateway is going away")
            sequence = request.after_sequence + sent + 1
            if sequence >= script.skip_sequence > 0:
                sequence += 1
            event = Event(
                stream_version=sequence,
                type=type(payload).__name__,
                metadata=EventMetadata(occurred_at=AT),
                recorded_at=AT,
                payload=payload,
            )
            yield gateway_pb2.WatchRequestResponse(sequence=sequence, event=wire.to_proto(event))
        if script.holds:
            await asyncio.Event().wait()

    async def CancelRequest(
        self, request: gateway_pb2.CancelRequestRequest, context: object
    ) -> gateway_pb2.CancelRequestResponse:
        self._script.cancelled.append(request.scope.target_id)
        return gateway_pb2.CancelRequestResponse(state=self._state())

    async def DeleteRequest(
        self, request: gateway_pb2.DeleteRequestRequest, context: object
    ) -> gateway_pb2.DeleteRequestResponse:
        self._script.deleted.append(request.request_id)
        self._script.fail_while_unavailable()
        return gateway_pb2.DeleteRequestResponse(request_id=request.request_id)

    def _state(self) -> request_pb2.RequestState:
        message: request_pb2.RequestState = wire.to_proto(
            RequestState(
                spec=SPEC,
                status=RequestStatus.COMPLETED,
                last_sequence=len(self._script.payloads),
                accepted_at=AT,
            )
        )
        return message


class ScriptedArtifacts(artifacts_pb2_grpc.ArtifactServiceServicer):
    def __init__(self, script: Script) -> None:
        self._script = script

    async def PutArtifact(
        self, request_iterator: AsyncIterator[artifacts_pb2.PutArtifactRequest], context: object
    ) -> artifacts_pb2.PutArtifactResponse:
        sent = [message async for message in request_iterator]
        self._script.fail_while_unavailable()
        if self._script.upload_refused is not None:
            name, reason = self._script.upload_refused
            raise InvalidField(name, "x", "an image", reason=reason)
        header, data = sent[0].header, b"".join(message.chunk for message in sent[1:])
        self._script.uploads.append((header, data))
        record = ArtifactRecord(
            artifact_id="art_in",
            kind=ArtifactKind.IMAGE,
            name=header.name,
            digest=hashlib.sha256(data).hexdigest(),
            size_bytes=len(data),
            producer=Producer(),
            created_at=AT,
            completed_at=AT,
        )
        return artifacts_pb2.PutArtifactResponse(record=wire.to_proto(record))

    async def GetArtifact(
        self, request: artifacts_pb2.GetArtifactRequest, context: object
    ) -> AsyncIterator[artifacts_pb2.GetArtifactResponse]:
        script = self._script
        script.read_from.append(request.start)
        yield artifacts_pb2.GetArtifactResponse(record=wire.to_proto(script.record))
        cut = script.take(script.byte_cuts)
        wanted = script.artifact[request.start :]
        for start in range(0, len(wanted), 10):
            if cut and start >= cut:
                raise Unavailable("the gateway is going away")
            yield artifacts_pb2.GetArtifactResponse(chunk=wanted[start : start + 10])


def serve(script: Script) -> Server:
    """The server, to be entered as a context."""
    return Server(
        "127.0.0.1:0",
        [
            Service.of(
                gateway_pb2.DESCRIPTOR,
                "GatewayService",
                gateway_pb2_grpc.add_GatewayServiceServicer_to_server,
                ScriptedGateway(script),
            ),
            Service.of(
                artifacts_pb2.DESCRIPTOR,
                "ArtifactService",
                artifacts_pb2_grpc.add_ArtifactServiceServicer_to_server,
                ScriptedArtifacts(script),
            ),
        ],
        grace_s=0.2,
    )


__all__ = ["AT", "SPEC", "Script", "history", "serve"]
