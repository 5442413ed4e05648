"""Submit: validate, make durable, answer. Nothing is stored for what is refused."""

import secrets
from dataclasses import dataclass
from typing import Final, Protocol

from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.clock import Clock, milliseconds
from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import AlreadyExists, CorruptLog, InvalidField
from fastvideo.events.catalog import NAMES, SCHEMA_VERSION, new_event
from fastvideo.events.records import AppendCommand, AppendResult, StreamAppend
from fastvideo.events.store import EventLog
from fastvideo.events.types import Event, EventMetadata
from fastvideo.ids import derived_id, new_id
from fastvideo.requests.draft import RequestDraft
from fastvideo.requests.events import RequestAccepted
from fastvideo.requests.reading import read_request
from fastvideo.requests.sampling import SEED_MAX
from fastvideo.requests.state import evolve, stream_of
from fastvideo.requests.types import RequestSpec, RequestState
from fastvideo.requests.validation import resolve_request
from fastvideo.sessions.reading import read_session
from fastvideo.sessions.state import check_takes
from fastvideo.telemetry.tracing import current_traceparent
from fastvideo_gateway.drafts import draft_of, payload_digest

KEY_CHARACTERS_MAX: Final = 200


class Appends(Protocol):
    """Whoever commits appends, one by one or several in a transaction."""

    async def append(self, command: AppendCommand) -> AppendResult:
        """Commit a command, or give back what its first run did."""
        ...


class ChecksInputs(Protocol):
    """Whoever knows which artifacts there are."""

    async def check(self, draft: RequestDraft, tenant_id: str) -> None:
        """Raise a typed error when a part names no complete artifact of its kind."""
        ...


@dataclass(frozen=True, slots=True)
class Submitted:
    """The request that a submit made, or the one that its key had made before."""

    state: RequestState
    repeated: bool


@dataclass(frozen=True, slots=True)
class _FirstUse:
    """What an idempotency key was first used for."""

    request_id: str
    digest: str

    def encode(self) -> bytes:
        return f"{self.request_id} {self.digest}".encode()

    @classmethod
    def decode(cls, data: bytes) -> "_FirstUse":
        request_id, _, digest = data.decode().partition(" ")
        return cls(request_id, digest)


class Submitter:
    """Turns submit messages into accepted requests."""

    def __init__(
        self,
        log: EventLog,
        appender: Appends,
        catalog: Catalog,
        inputs: ChecksInputs,
        clock: Clock,
    ) -> None:
        self._log = log
        self._appender = appender
        self._catalog = catalog
        self._inputs = inputs
        self._clock = clock

    async def submit(self, message: gateway_pb2.SubmitRequestRequest, tenant_id: str) -> Submitted:
        """Accept a request, once for each idempotency key.

        Raises NotFound, FailedPrecondition and InvalidField for what cannot be accepted, and
        AlreadyExists for a key that was used for something else.
        """
        key = _scoped_key(message.idempotency_key, tenant_id)
        digest = payload_digest(message)
        if key is not None and await self._was_used(key):
            # A repeat is answered even when its draft would be refused by now.
            result = await self._appender.append(AppendCommand(idempotency_key=key))
            return await self._first(result, digest)
        spec = await self._resolve(draft_of(message), tenant_id)
        return await self._accept(spec, key, digest)

    async def _was_used(self, key: str) -> bool:
        return await self._log.position_of(_event_id(key)) is not None

    async def _resolve(self, draft: RequestDraft, tenant_id: str) -> RequestSpec:
        if not draft.model_id:
            allowed = ", ".join(self._catalog.model_ids)
            raise InvalidField("model_id", "", allowed, reason="MODEL_REQUIRED")
        now = self._clock.now()
        spec = resolve_request(
            draft,
            self._catalog.get(draft.model_id),
            request_id=new_id("req", milliseconds(now)),
            tenant_id=tenant_id,
            random_seed=secrets.randbelow(SEED_MAX + 1),
            now=now,
        )
        await self._inputs.check(draft, tenant_id)
        if spec.session_id:
            session = await read_session(self._log, spec.session_id)
            check_takes(session.state, spec.session_id, tenant_id, spec.model_id)
        return spec

    async def _accept(self, spec: RequestSpec, key: str | None, digest: str) -> Submitted:
        event = self._accepted(spec, key)
        new = new_event(event.event_id, event.payload, event.metadata)
        command = AppendCommand(
            streams=(StreamAppend(event.stream_id, (new,), expected_version=0),),
            idempotency_key=key,
            result=_FirstUse(spec.request_id, digest).encode(),
        )
        result = await self._appender.append(command)
        # A repeat may be this very append, tried again after the database did not answer.
        if result.repeated and _FirstUse.decode(result.result).request_id != spec.request_id:
            return await self._first(result, digest)
        return Submitted(evolve(None, event), repeated=False)

    async def _first(self, result: AppendResult, digest: str) -> Submitted:
        first = _FirstUse.decode(result.result)
        if first.digest != digest:
            raise AlreadyExists(
                f"the idempotency key was used for request {first.request_id} with another "
                "payload; use a new key for a new request",
                reason="IDEMPOTENCY_KEY_REUSED",
                subject="idempotency_key",
                attributes={"request_id": first.request_id},
            )
        state = await read_request(self._log, first.request_id)
        if state is None:
            raise CorruptLog(f"a key names request {first.request_id}, which is not in the log")
        return Submitted(state, repeated=True)

    def _accepted(self, spec: RequestSpec, key: str | None) -> Event:
        now = self._clock.now()
        name = RequestAccepted.__name__
        return Event(
            event_id=_event_id(key) if key else new_id("evt", milliseconds(now)),
            stream_id=stream_of(spec.request_id),
            stream_version=1,
            type=name,
            name=NAMES[name],
            schema_version=SCHEMA_VERSION,
            metadata=EventMetadata(
                tenant_id=spec.tenant_id,
                request_id=spec.request_id,
                session_id=spec.session_id,
                program_id=spec.program_id,
                model_id=spec.model_id,
                traceparent=current_traceparent(),
                occurred_at=now,
            ),
            recorded_at=now,
            payload=RequestAccepted(spec=spec),
        )


def _scoped_key(key: str, tenant_id: str) -> str | None:
    if not key:
        return None
    if len(key) > KEY_CHARACTERS_MAX or not key.isprintable():
        raise InvalidField(
            "idempotency_key", key, f"at most {KEY_CHARACTERS_MAX} printable characters"
        )
    return f"submit/{tenant_id}/{key}"


def _event_id(key: str) -> str:
    """The key decides the event, so that a repeat is found without writing."""
    return derived_id("evt", key)
