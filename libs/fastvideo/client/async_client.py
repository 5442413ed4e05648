"""The client for asyncio."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, Unpack

from opentelemetry.trace import SpanKind

from fastvideo import wire
from fastvideo.api.artifacts.v1 import artifacts_pb2_grpc
from fastvideo.api.common.v1 import request_pb2
from fastvideo.api.events.v1 import log_pb2_grpc
from fastvideo.api.gateway.v1 import gateway_pb2, gateway_pb2_grpc, keys_pb2_grpc
from fastvideo.api.replay.v1 import replay_pb2_grpc
from fastvideo.api.sessions.v1 import sessions_pb2_grpc
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord
from fastvideo.client.batch_file import BatchItem
from fastvideo.client.batches import AT_ONCE, BatchResult, OnItem, run_batch
from fastvideo.client.calls import CallPolicy, Calls, check_address, check_timeout
from fastvideo.client.downloads import Download, save
from fastvideo.client.ending import abandon, made, require_completed, waited, within
from fastvideo.client.event_log import LogClient
from fastvideo.client.generation import Generation
from fastvideo.client.keys import KeyClient
from fastvideo.client.notebook import in_notebook
from fastvideo.client.past_calls import PastCalls
from fastvideo.client.session import AsyncSession
from fastvideo.client.session_calls import SessionCalls
from fastvideo.client.showing import INLINE_BYTES_MAX, shown
from fastvideo.client.submission import (
    NamedSampling,
    check_names,
    filled,
    instance,
    keywords,
    member,
    named_as_given,
    renamed,
    sampled,
    submit_message,
)
from fastvideo.client.summaries import model_description, model_summary
from fastvideo.client.types import DEFAULT_MODEL_ID, ModelDescription, ModelSummary, Page
from fastvideo.client.uploads import Source, upload
from fastvideo.client.watch import watch
from fastvideo.deployment.card import EngineOffer
from fastvideo.errors import DeadlineExceeded, InvalidField
from fastvideo.events.types import Event
from fastvideo.requests.types import (
    OutputSpec,
    RequestState,
    RequestStatus,
    SamplingOverrides,
)
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.outgoing import with_key
from fastvideo.rpc.tls import ClientTls
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo.telemetry import tracing

# The server cancels a running request first, and waits for that.
DELETE_S: Final = 60.0
_VIDEO_ONLY: Final = OutputSpec(video=True)
_AS_THE_CARD_SAYS: Final = SamplingOverrides()


class AsyncClient(SessionCalls, PastCalls):
    """Talks to a gateway at "host:port". Use it as an async context, or `close` it.

    A gateway that asks for keys is shown `api_key`; one that speaks TLS is dialled with `tls`.

    Methods raise `fastvideo.errors`: InvalidField for a bad input, NotFound, Unavailable when
    nobody answers in time, and so on. One client may make any number of calls at a time, in one
    event loop; a client that was closed, forked or taken to another loop refuses with
    FailedPrecondition. What is called is tried again, within the policy's time, while the server
    is away: nothing is done twice by that.
    """

    def __init__(
        self,
        address: str,
        *,
        api_key: str = "",
        tls: ClientTls | None = None,
        policy: CallPolicy | None = None,
    ) -> None:
        check_address(address)
        self.address = address
        self._policy = policy or CallPolicy()
        self._calls = Calls(address, self._policy, tls)
        self._channel = open_channel(address, tls=tls, interceptors=with_key(api_key))
        self._gateway = gateway_pb2_grpc.GatewayServiceStub(self._channel)
        self._artifacts = artifacts_pb2_grpc.ArtifactServiceStub(self._channel)
        self._sessions = sessions_pb2_grpc.SessionServiceStub(self._channel)
        self._log = log_pb2_grpc.EventLogServiceStub(self._channel)
        self._replays = replay_pb2_grpc.ReplayServiceStub(self._channel)
        self.log = LogClient(self._log, self._calls)
        self.keys = KeyClient(keys_pb2_grpc.KeyServiceStub(self._channel), self._calls)

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
        """Close the connection; running calls end with Cancelled. A second time does nothing."""
        if self._calls.closed:
            return
        self._calls.close()
        if not self._calls.forked:
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
        timeout_s: float | None = None,
        **named: Unpack[NamedSampling],
    ) -> Generation:
        """Ask for a generation; it is durable when this returns.

        Sampling is given by name, as in `steps=20, seed=7`, or as `SamplingOverrides`; what is
        left out takes the card's default, and a seed is drawn. The answer's spec has every value.

        With an `image`, a path, bytes or what `upload` gave, the video starts from it: its middle
        in the shape of the request's width and height, never stretched.

        With a `session_id`, what the session remembers joins the prompt as its conditioning says;
        the answer's spec has the whole text, and whose words each stretch of it is.

        A submit that is repeated with the same idempotency key answers with the first request.
        Without a key, each call of this method is a request of its own.

        Raises InvalidField naming the argument, NotFound for a model, session or image,
        FailedPrecondition for a closed session or a model that cannot be served, and
        ResourceExhausted, with `retry_after_s` in its attributes, beyond a quota.
        """
        if image is not None and not isinstance(image, ArtifactRecord):
            with renamed({"source": "image"}):
                image = await self.upload(image)
        if named:
            check_names(named, keywords(self.submit))
        request = submit_message(
            prompt=prompt,
            negative_prompt=negative_prompt,
            image_id="" if image is None else image.artifact_id,
            model_id=model_id,
            sampling=sampled(sampling, named),
            outputs=outputs,
            session_id=session_id,
            priority=priority,
            deadline=deadline,
            idempotency_key=idempotency_key or uuid.uuid4().hex,
        )
        with named_as_given():
            answer = await self._calls(self._gateway.SubmitRequest, request, timeout_s)
        return _generation(answer.state)

    async def get(self, request_id: str, *, timeout_s: float | None = None) -> Generation:
        """Where a request stands. Raises NotFound, also for one that was deleted."""
        request = filled(gateway_pb2.GetRequestRequest(), request_id=request_id)
        return _generation((await self._calls(self._gateway.GetRequest, request, timeout_s)).state)

    async def list(
        self,
        *,
        status: RequestStatus | str | None = None,
        session_id: str = "",
        page_size: int = 0,
        page_token: str = "",
    ) -> Page[Generation]:
        """Requests, newest first; a page size of 0 takes the server's."""
        request = filled(
            gateway_pb2.ListRequestsRequest(),
            page_size=page_size,
            page_token=page_token,
            session_id=session_id,
        )
        if status is not None:
            name = member("status", status, RequestStatus).upper()
            request.status = request_pb2.RequestStatus.Value(f"REQUEST_STATUS_{name}")
        answer = await self._calls(self._gateway.ListRequests, request)
        return Page(tuple(map(_generation, answer.states)), answer.next_page_token)

    def watch(self, request_id: str, *, after_sequence: int = 0) -> AsyncGenerator[Event, None]:
        """A request's events after a sequence number, ending with the terminal one.

        An event's `payload` is of the type that its `type` names, and its `stream_version` is its
        sequence number. Cuts are bridged, also when the gateway is killed and comes back: nothing
        is missed and nothing comes twice.
        """
        self._calls.check()
        return watch(self._gateway, request_id, after_sequence, self._policy)

    async def wait(
        self,
        request_id: str,
        *,
        timeout_s: float | None = None,
        on_event: Callable[[Event], None] | None = None,
        progress: bool | None = None,
        cancel_when_left: bool = False,
    ) -> Generation:
        """The request once it has ended, however it ended.

        Raises DeadlineExceeded after `timeout_s` seconds; None waits as long as it takes. Who
        stops waiting, by that or by cancelling the task, leaves the request running, unless
        `cancel_when_left`. `progress` shows how far it is; None does so in notebooks alone.
        """
        try:
            await waited(self.watch(request_id), request_id, timeout_s, on_event, progress)
        except (asyncio.CancelledError, DeadlineExceeded):
            if cancel_when_left:
                await abandon(self._abandon(request_id))
            raise
        ended = await self.get(request_id)
        return await self.show(ended) if in_notebook() else ended

    async def cancel(
        self, request_id: str, *, loop: str = "", stream: str = "", reason: str = ""
    ) -> Generation:
        """Ask for cancellation, which lands at the request's next boundary.

        With `loop`, a node of its program, or `stream`, the name of an output stream, only that
        part is cancelled and the rest goes on. Of a request that has ended nothing changes.
        """
        request_id = instance("request_id", request_id, str)
        if loop and stream:
            raise InvalidField("stream", stream, "left out when loop is given")
        scope = CancelScope(kind=CancelScopeKind.REQUEST, target_id=request_id)
        if loop:
            scope = CancelScope(kind=CancelScopeKind.LOOP, target_id=f"{request_id}/{loop}")
        elif stream:
            scope = CancelScope(kind=CancelScopeKind.STREAM, target_id=f"{request_id}/{stream}")
        request = filled(
            gateway_pb2.CancelRequestRequest(scope=wire.to_proto(scope)), reason=reason
        )
        with renamed({} if loop or stream else {"scope.target_id": "request_id"}):
            answer = await self._calls(self._gateway.CancelRequest, request)
        return _generation(answer.state)

    async def _abandon(self, request_id: str) -> None:
        await self.cancel(request_id, reason="nobody waits for it any more")

    async def delete(self, request_id: str, *, timeout_s: float = DELETE_S) -> None:
        """Delete a request and what it made; a running one is cancelled first.

        A second time changes nothing. Raises NotFound, and Unavailable, DELETE_PENDING, when it
        did not end in time.
        """
        request = filled(gateway_pb2.DeleteRequestRequest(), request_id=request_id)
        await self._calls(self._gateway.DeleteRequest, request, timeout_s)

    async def generate(
        self,
        prompt: str,
        *,
        timeout_s: float | None = None,
        on_event: Callable[[Event], None] | None = None,
        progress: bool | None = None,
        cancel_when_left: bool = False,
        **options: Any,
    ) -> Generation:
        """Submit and wait, in one trace; `options` are those of `submit`, the rest of `wait`.

        Who is cancelled while it submits, `cancel_when_left`, ends once the request is known and
        cancelled. Raises what the request failed of, and Cancelled when somebody cancelled it.
        """
        check_timeout(timeout_s)
        check_names(options, keywords(self.submit, self.generate))
        with tracing.span("fastvideo.generate", kind=SpanKind.CLIENT):
            submitting = self.submit(prompt, **options)
            submitted = await (made(submitting, self._abandon) if cancel_when_left else submitting)
            ended = await self.wait(
                submitted.request_id,
                timeout_s=timeout_s,
                on_event=on_event,
                progress=progress,
                cancel_when_left=cancel_when_left,
            )
        require_completed(ended)
        return ended

    async def show(
        self, request: RequestState | str, *, inline_bytes_max: int = INLINE_BYTES_MAX
    ) -> Generation:
        """The request with its video and images, for a notebook to show.

        `request` is its state or its id. Files above `inline_bytes_max` are named, not shown.
        """
        state = await self.get(request) if isinstance(request, str) else request
        instance("request", state, RequestState)
        return await shown(self._artifacts, state, self._policy, inline_bytes_max)

    # -- artifacts -------------------------------------------------------------------------

    async def upload(
        self, source: Source, kind: ArtifactKind = ArtifactKind.IMAGE
    ) -> ArtifactRecord:
        """Store a file, given by its path or its bytes, that requests may then name.

        Kinds: image (PNG, JPEG, WebP) and latent (safetensors with `latents`). The same file
        again gives the same record. Raises OSError for a path that cannot be read, InvalidField
        for another kind of file, and ResourceExhausted for one that is too large.
        """
        self._calls.check()
        return await upload(self._artifacts, source, kind, self._policy)

    async def read_artifact(
        self, artifact: ArtifactRecord | str, *, timeout_s: float | None = None
    ) -> bytes:
        """An artifact's bytes, verified by digest; a cut is taken up where it was.

        `artifact` is its record or its id. Raises NotFound, Gone once its time is over,
        DeadlineExceeded after `timeout_s` seconds, and FastVideoError with the reason
        DIGEST_MISMATCH for other bytes than its record says.
        """
        self._calls.check()
        artifact_id = _id_of(artifact)
        download = Download(self._artifacts, artifact_id, self._policy)
        async with within(timeout_s, artifact_id), aclosing(download.chunks()) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def save_artifact(
        self, artifact: ArtifactRecord | str, path: Path | str, *, timeout_s: float | None = None
    ) -> ArtifactRecord:
        """Write an artifact to a file, which appears only when it is whole and verified.

        A cut is taken up where it was. Raises as `read_artifact`, and OSError.
        """
        self._calls.check()
        artifact_id = _id_of(artifact)
        async with within(timeout_s, artifact_id):
            return await save(Download(self._artifacts, artifact_id, self._policy), Path(path))

    # -- models and sessions ---------------------------------------------------------------

    async def models(self) -> tuple[ModelSummary, ...]:
        """The models that the server knows, and whether each is ready."""
        answer = await self._calls(self._gateway.ListModels, gateway_pb2.ListModelsRequest())
        return tuple(map(model_summary, answer.models))

    async def describe_model(self, model_id: str) -> ModelDescription:
        """A model's card: components, loops, sampling defaults and bounds. Raises NotFound."""
        request = filled(gateway_pb2.DescribeModelRequest(), model_id=model_id)
        return model_description(await self._calls(self._gateway.DescribeModel, request))

    async def deployment(self) -> tuple[EngineOffer, ...]:
        """What the engines behind the gateway offer now, and at what price; for operators."""
        answer = await self._calls(self._gateway.GetDeployment, gateway_pb2.GetDeploymentRequest())
        return tuple(wire.from_proto(EngineOffer, offer) for offer in answer.engines)

    def session(self, session_id: str = "", **options: Any) -> AsyncSession:
        """A session as a context: opened with the `options` of `create_session`, and closed at
        the end. With `session_id` it is one that is there already, and it stays open."""
        return AsyncSession(self, session_id, options)

    async def batch(
        self,
        items: Sequence[BatchItem],
        folder: Path | str,
        *,
        base: Path | str | None = None,
        at_once: int = AT_ONCE,
        retry_failed: bool = False,
        on_item: OnItem | None = None,
    ) -> tuple[BatchResult, ...]:
        """Generate every item into a folder that can be taken up again; see `run_batch`."""
        return await run_batch(
            self,
            items,
            Path(folder),
            base=None if base is None else Path(base),
            at_once=at_once,
            retry_failed=retry_failed,
            on_item=on_item,
        )


def _id_of(artifact: ArtifactRecord | str) -> str:
    if isinstance(artifact, ArtifactRecord):
        return artifact.artifact_id
    if not isinstance(artifact, str) or not artifact:
        raise InvalidField("artifact", artifact, "the record or the id of an artifact")
    return artifact


def _generation(message: Any) -> Generation:
    return Generation.of(wire.from_proto(RequestState, message))
