"""The client for asyncio."""

import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from opentelemetry.trace import SpanKind

from fastvideo import wire
from fastvideo.api.artifacts.v1 import artifacts_pb2_grpc
from fastvideo.api.common.v1 import request_pb2
from fastvideo.api.events.v1 import log_pb2_grpc
from fastvideo.api.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from fastvideo.api.replay.v1 import replay_pb2_grpc
from fastvideo.api.sessions.v1 import sessions_pb2, sessions_pb2_grpc
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord
from fastvideo.client.behaviors import behaviors
from fastvideo.client.calls import CallPolicy, call
from fastvideo.client.downloads import Download, save
from fastvideo.client.event_log import LogClient
from fastvideo.client.explanations import explain
from fastvideo.client.replays import OnTold, logged_run, run_replay
from fastvideo.client.submission import named_as_given, renamed, submit_message
from fastvideo.client.summaries import model_summary
from fastvideo.client.types import ModelSummary, Page
from fastvideo.client.uploads import Source, upload
from fastvideo.client.watch import ENDED, watch
from fastvideo.deployment.card import EngineOffer
from fastvideo.errors import Cancelled, FastVideoError, Unavailable
from fastvideo.events.types import Event
from fastvideo.explain.types import Explanation
from fastvideo.replay.types import LoggedRun, ReplayKind, ReplayReport, ReplayRequest
from fastvideo.requests.types import (
    OutputSpec,
    RequestState,
    RequestStatus,
    SamplingOverrides,
)
from fastvideo.rpc.channel import open_channel
from fastvideo.scheduling.traces import BehaviorRecorded, ParityChecked
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo.sessions.types import SessionState
from fastvideo.telemetry import tracing

DEFAULT_MODEL_ID: Final = "moving-digits"
_VIDEO_ONLY: Final = OutputSpec(video=True)
_AS_THE_CARD_SAYS: Final = SamplingOverrides()


class AsyncClient:
    """Talks to a gateway at "host:port". Use it as an async context, or `close` it.

    Methods raise `fastvideo.errors`: InvalidField for a bad input, NotFound, Unavailable when
    nobody answers in time, and so on.
    """

    def __init__(self, address: str, *, policy: CallPolicy | None = None) -> None:
        self.address = address
        self._policy = policy or CallPolicy()
        self._channel = open_channel(address)
        self._gateway = gateway_pb2_grpc.GatewayServiceStub(self._channel)
        self._artifacts = artifacts_pb2_grpc.ArtifactServiceStub(self._channel)
        self._sessions = sessions_pb2_grpc.SessionServiceStub(self._channel)
        self._log = log_pb2_grpc.EventLogServiceStub(self._channel)
        self._replays = replay_pb2_grpc.ReplayServiceStub(self._channel)
        self.log = LogClient(self._log, self._policy)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; running calls end."""
        await self._channel.close()

    # -- requests --------------------------------------------------------------------------

    async def submit(
        self,
        prompt: str,
        *,
        model_id: str = DEFAULT_MODEL_ID,
        negative_prompt: str | None = None,
        image: Source | ArtifactRecord | None = None,
        sampling: SamplingOverrides = _AS_THE_CARD_SAYS,
        outputs: OutputSpec = _VIDEO_ONLY,
        session_id: str = "",
        priority: int = 0,
        deadline: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> RequestState:
        """Ask for a generation; it is durable when this returns.

        With an `image`, a path, bytes or what `upload` gave, the video starts from it: its middle
        in the shape of the request's width and height, never stretched.

        A submit that is repeated with the same idempotency key answers with the first request.
        Without a key, each call of this method is a request of its own.
        """
        if image is not None and not isinstance(image, ArtifactRecord):
            with renamed({"source": "image"}):
                image = await self.upload(image)
        request = submit_message(
            prompt=prompt,
            negative_prompt=negative_prompt,
            image_id="" if image is None else image.artifact_id,
            model_id=model_id,
            sampling=sampling,
            outputs=outputs,
            session_id=session_id,
            priority=priority,
            deadline=deadline,
            idempotency_key=idempotency_key or uuid.uuid4().hex,
        )
        with named_as_given():
            return _state((await self._call(self._gateway.SubmitRequest, request)).state)

    async def get(self, request_id: str) -> RequestState:
        """Where a request stands."""
        request = gateway_pb2.GetRequestRequest(request_id=request_id)
        return _state((await self._call(self._gateway.GetRequest, request)).state)

    async def list(
        self,
        *,
        status: RequestStatus | None = None,
        session_id: str = "",
        page_size: int = 0,
        page_token: str = "",
    ) -> Page[RequestState]:
        """Requests, newest first; a page size of 0 takes the server's."""
        request = gateway_pb2.ListRequestsRequest(
            page_size=page_size, page_token=page_token, session_id=session_id
        )
        if status is not None:
            request.status = request_pb2.RequestStatus.Value(f"REQUEST_STATUS_{status.upper()}")
        answer = await self._call(self._gateway.ListRequests, request)
        return Page(tuple(map(_state, answer.states)), answer.next_page_token)

    def watch(self, request_id: str, *, after_sequence: int = 0) -> AsyncGenerator[Event, None]:
        """A request's events after a sequence number, ending with the terminal one.

        An event's `stream_version` is its sequence number. Cuts are bridged: nothing is missed
        and nothing comes twice.
        """
        return watch(self._gateway, request_id, after_sequence, self._policy)

    async def wait(
        self, request_id: str, *, on_event: Callable[[Event], None] | None = None
    ) -> RequestState:
        """The request once it has ended; bound the time with `asyncio.timeout`."""
        async with aclosing(self.watch(request_id)) as events:
            async for event in events:
                if on_event is not None:
                    on_event(event)
        return await self.get(request_id)

    async def cancel(
        self, request_id: str, *, loop: str = "", stream: str = "", reason: str = ""
    ) -> RequestState:
        """Ask for cancellation, which lands at the request's next boundary.

        With `loop`, a node of its program, or `stream`, the name of an output stream, only that
        part is cancelled and the rest goes on.
        """
        scope = CancelScope(kind=CancelScopeKind.REQUEST, target_id=request_id)
        if loop:
            scope = CancelScope(kind=CancelScopeKind.LOOP, target_id=f"{request_id}/{loop}")
        elif stream:
            scope = CancelScope(kind=CancelScopeKind.STREAM, target_id=f"{request_id}/{stream}")
        request = gateway_pb2.CancelRequestRequest(scope=wire.to_proto(scope), reason=reason)
        return _state((await self._call(self._gateway.CancelRequest, request)).state)

    async def explain(self, request_id: str, *, units_max: int = 10_000) -> Explanation:
        """Why a request took, or takes, the time that it does, read from the log.

        Holds at most `units_max` of its `unit_count` units, the first ones; all else is whole.
        """
        return await explain(self._gateway, request_id, units_max, self._policy)

    async def replay(
        self,
        kind: ReplayKind | str,
        subject_id: str = "",
        *,
        on_told: OnTold | None = None,
        **options: Any,
    ) -> ReplayReport:
        """Run the past again and compare; `options` are the other fields of `ReplayRequest`.

        Takes as long as it takes; to be cancelled, it is stopped on the server too. A report
        whose `equal` is False raises nothing.
        """
        request = ReplayRequest(kind=ReplayKind(kind), subject_id=subject_id, **options)
        return await run_replay(self._replays, request, on_told)

    async def logged_run(self, request_id: str) -> LoggedRun:
        """What the log says of a request's run: enough to do it again elsewhere."""
        return await logged_run(self._replays, request_id, self._policy)

    async def record_parity(self, checks: Sequence[ParityChecked]) -> None:
        """Keep results of parity checks in the log, each in its model's stream."""
        request = gateway_pb2.RecordParityRequest(
            idempotency_key=uuid.uuid4().hex, checks=[wire.to_proto(check) for check in checks]
        )
        await self._call(self._gateway.RecordParity, request)

    async def generate(
        self,
        prompt: str,
        *,
        on_event: Callable[[Event], None] | None = None,
        **options: Any,
    ) -> RequestState:
        """Submit and wait, in one trace; `options` are those of `submit`.

        Raises what the request failed of, and Cancelled when somebody cancelled it.
        """
        with tracing.span("fastvideo.generate", kind=SpanKind.CLIENT):
            submitted = await self.submit(prompt, **options)
            ended = await self.wait(submitted.spec.request_id, on_event=on_event)
        require_completed(ended)
        return ended

    def behaviors(
        self, where: Mapping[str, str] | None = None, *, limit: int | None = None
    ) -> AsyncGenerator[BehaviorRecorded, None]:
        """What policies did, newest first, of requests that captured it.

        `where` is a field of the record to the value that it must have, or, of a field with
        several, hold; of a map "key=value": `{"guidance_settings": "scale=3.0"}`.
        """
        return behaviors(self._log, where or {}, limit, self._policy)

    # -- artifacts -------------------------------------------------------------------------

    async def upload(
        self, source: Source, kind: ArtifactKind = ArtifactKind.IMAGE
    ) -> ArtifactRecord:
        """Store a file, given by its path or its bytes, that requests may then name.

        Kinds: image (PNG, JPEG, WebP) and latent (safetensors with `latents`). The same file
        again gives the same record. Raises OSError for a path that cannot be read, InvalidField
        for another kind of file, and ResourceExhausted for one that is too large.
        """
        return await upload(self._artifacts, source, kind, self._policy)

    async def read_artifact(self, artifact_id: str) -> bytes:
        """An artifact's bytes, verified."""
        download = Download(self._artifacts, artifact_id, self._policy)
        async with aclosing(download.chunks()) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def save_artifact(self, artifact_id: str, path: Path | str) -> ArtifactRecord:
        """Write an artifact to a file, which appears only when it is whole and verified."""
        return await save(Download(self._artifacts, artifact_id, self._policy), Path(path))

    # -- models and sessions ---------------------------------------------------------------

    async def models(self) -> tuple[ModelSummary, ...]:
        """The models that the server knows."""
        answer = await self._call(self._gateway.ListModels, gateway_pb2.ListModelsRequest())
        return tuple(map(model_summary, answer.models))

    async def deployment(self) -> tuple[EngineOffer, ...]:
        """What the engines behind the gateway offer now, and at what price; for operators."""
        answer = await self._call(self._gateway.GetDeployment, gateway_pb2.GetDeploymentRequest())
        return tuple(wire.from_proto(EngineOffer, offer) for offer in answer.engines)

    async def create_session(
        self,
        *,
        model_ids: Sequence[str] = (DEFAULT_MODEL_ID,),
        user_id: str = "",
        inactivity_timeout_s: int = 0,
        prompt_memory_limit: int = 0,
        idempotency_key: str | None = None,
    ) -> SessionState:
        """Open a session; zeros take the service's defaults."""
        request = sessions_pb2.CreateSessionRequest(
            model_ids=model_ids,
            user_id=user_id,
            inactivity_timeout_s=inactivity_timeout_s,
            prompt_memory_limit=prompt_memory_limit,
            idempotency_key=idempotency_key or uuid.uuid4().hex,
        )
        return _session((await self._call(self._sessions.CreateSession, request)).state)

    async def get_session(self, session_id: str) -> SessionState:
        """Where a session stands."""
        request = sessions_pb2.GetSessionRequest(session_id=session_id)
        return _session((await self._call(self._sessions.GetSession, request)).state)

    async def list_sessions(
        self, *, page_size: int = 0, page_token: str = ""
    ) -> Page[SessionState]:
        """Sessions; a page size of 0 takes the server's."""
        request = sessions_pb2.ListSessionsRequest(page_size=page_size, page_token=page_token)
        answer = await self._call(self._sessions.ListSessions, request)
        return Page(tuple(map(_session, answer.states)), answer.next_page_token)

    async def close_session(self, session_id: str) -> SessionState:
        """Close a session."""
        request = sessions_pb2.CloseSessionRequest(session_id=session_id)
        return _session((await self._call(self._sessions.CloseSession, request)).state)

    async def _call(self, method: Any, request: Any) -> Any:
        try:
            return await call(method, request, self._policy)
        except Unavailable as error:
            error.subject = error.subject or self.address
            raise


def require_completed(state: RequestState) -> None:
    """Raise what a request failed of, or Cancelled; nothing when it completed."""
    if state.status is RequestStatus.FAILED and state.error is not None:
        raise FastVideoError(
            state.error.message,
            reason=state.error.reason,
            subject=state.error.subject,
            attributes=state.error.attributes,
        )
    if state.status is RequestStatus.CANCELLED:
        raise Cancelled(
            f"request {state.spec.request_id} was cancelled", subject=state.spec.request_id
        )
    if state.status not in ENDED:
        raise FastVideoError(f"request {state.spec.request_id} has not ended")


def _state(message: Any) -> RequestState:
    return wire.from_proto(RequestState, message)


def _session(message: Any) -> SessionState:
    return wire.from_proto(SessionState, message)
