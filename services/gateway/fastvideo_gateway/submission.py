"""Submit: validate, make durable, answer. Nothing is stored for what is refused."""

import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.clock import Clock, milliseconds
from fastvideo.deployment.catalog import Catalog
from fastvideo.deployment.servables import find_servable, named_program
from fastvideo.errors import AlreadyExists, CorruptLog, FastVideoError, InvalidField, Unavailable
from fastvideo.events.catalog import NAMES, UPCASTERS, new_event
from fastvideo.events.first_use import FirstUse, asked_digest, keyed_event_id, scoped_key
from fastvideo.events.metadata import request_metadata
from fastvideo.events.records import AppendCommand, AppendResult, StreamAppend
from fastvideo.events.store import Appends, EventLog
from fastvideo.events.types import Event
from fastvideo.ids import new_id
from fastvideo.requests.draft import RequestDraft
from fastvideo.requests.events import RequestAccepted
from fastvideo.requests.lifetimes import as_of
from fastvideo.requests.reading import read_request
from fastvideo.requests.sampling import SEED_MAX
from fastvideo.requests.state import evolve, stream_of
from fastvideo.requests.types import RequestSpec, RequestState
from fastvideo.requests.validation import resolve_request
from fastvideo.telemetry import metrics
from fastvideo.telemetry.instruments import MODEL, REQUEST_KIND, REQUESTS_ACCEPTED
from fastvideo.telemetry.tracing import current_traceparent
from fastvideo_gateway.drafts import draft_of
from fastvideo_gateway.lifetimes import Lifetimes
from fastvideo_gateway.quotas.types import NoQuotas, Quotas
from fastvideo_gateway.session_turns import RequestTurns, Turn
from fastvideo_gateway.tokens import PromptLengths


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
class _Asked:
    """A submit that can be accepted."""

    spec: RequestSpec
    key: str | None
    digest: str


class Submitter:
    """Turns submit messages into accepted requests."""

    def __init__(
        self,
        log: EventLog,
        appender: Appends,
        catalog: Catalog,
        inputs: ChecksInputs,
        clock: Clock,
        quotas: Quotas | None = None,
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self._log = log
        self._lifetimes = lifetimes
        self._quotas = quotas or NoQuotas()
        self._appender = appender
        self._catalog = catalog
        self._inputs = inputs
        self._clock = clock
        self._lengths = PromptLengths()
        self._accepted_count = metrics.counter(REQUESTS_ACCEPTED)
        self._turns = RequestTurns(log, catalog, self._lengths)

    async def submit(self, message: gateway_pb2.SubmitRequestRequest, tenant_id: str) -> Submitted:
        """Accept a request, once for each idempotency key.

        Raises NotFound, FailedPrecondition and InvalidField for what cannot be accepted,
        ResourceExhausted when a quota of the tenant is used up, and AlreadyExists for a key that
        was used for something else.
        """
        asked = await self._asked(message, tenant_id)
        if isinstance(asked, Submitted):
            return asked
        await self._quotas.admit(asked.spec)
        return await self._admitted(asked)

    async def submit_all(
        self, messages: Sequence[gateway_pb2.SubmitRequestRequest], tenant_id: str
    ) -> AsyncGenerator[Submitted, None]:
        """Accept `n` requests, in order; none is stored before all have been let in.

        Raises what `submit` does, and InvalidField naming `n` for more than the tenant's quotas
        can ever let in together. Keys of what was not stored are as good as unused; those of what
        was are used for as many.
        """
        asked = [await self._asked(message, tenant_id, len(messages)) for message in messages]
        new = [one.spec for one in asked if isinstance(one, _Asked)]
        most = self._quotas.most_at_once(new)
        if len(new) > most:
            allowed = f"at most {most}, which is what the tenant's quotas let in at once"
            raise InvalidField("n", len(messages), allowed)
        # Let in, and neither stored nor tried to be.
        waiting: list[RequestSpec] = []
        try:
            for spec in new:
                await self._quotas.admit(spec)
                waiting.append(spec)
            for one in asked:
                if isinstance(one, Submitted):
                    yield one
                    continue
                waiting.remove(one.spec)
                yield await self._admitted(one)
        finally:
            for spec in waiting:
                await self._quotas.withdraw(spec)

    async def _asked(
        self, message: gateway_pb2.SubmitRequestRequest, tenant_id: str, together: int = 1
    ) -> _Asked | Submitted:
        """What can be accepted; of a key that was used, what it made."""
        key = scoped_key("submit", tenant_id, message.idempotency_key)
        digest = asked_digest(message)
        if together > 1:
            # Fewer or more of the same are something else.
            digest = f"{digest}/{together}"
        if key is not None and await self._was_used(key):
            # A repeat is answered even when its draft would be refused by now.
            # An append of nothing tells the key's first use.
            result = await self._appender.append(AppendCommand(idempotency_key=key))
            return await self._first(result, digest)
        return _Asked(await self._resolve(draft_of(message), tenant_id), key, digest)

    async def _admitted(self, asked: _Asked) -> Submitted:
        """Store what was let in; what was not stored is taken back from the quotas."""
        spec, key, digest = asked.spec, asked.key, asked.digest
        try:
            submitted = await self._store(spec, key, digest)
        except Unavailable:
            # It may be in the log nevertheless.
            raise
        except FastVideoError:
            await self._quotas.withdraw(spec)
            raise
        if submitted.repeated:
            await self._quotas.withdraw(spec)
        return submitted

    async def _store(self, spec: RequestSpec, key: str | None, digest: str) -> Submitted:
        if not spec.session_id:
            return await self._accept(spec, key, digest)
        return await self._turns.take(spec, lambda turn: self._accept(turn.spec, key, digest, turn))

    async def _was_used(self, key: str) -> bool:
        return await self._log.position_of(keyed_event_id(key)) is not None

    async def _resolve(self, draft: RequestDraft, tenant_id: str) -> RequestSpec:
        if not draft.model_id:
            allowed = ", ".join(self._catalog.model_ids)
            raise InvalidField("model_id", "", allowed, reason="MODEL_REQUIRED")
        now = self._clock.now()
        entry, program = find_servable(self._catalog, draft.model_id)
        kind, program_id = named_program(program, draft.model_id, draft.kind, draft.program_id)
        draft = replace(draft, model_id=entry.card.model_id, kind=kind, program_id=program_id)
        spec = resolve_request(
            draft,
            entry,
            request_id=new_id("req", milliseconds(now)),
            tenant_id=tenant_id,
            random_seed=secrets.randbelow(SEED_MAX + 1),
            now=now,
        )
        await self._lengths.check(spec, entry)
        await self._inputs.check(draft, tenant_id)
        return spec if self._lifetimes is None else self._lifetimes.settle(spec)

    async def _accept(
        self, spec: RequestSpec, key: str | None, digest: str, turn: Turn | None = None
    ) -> Submitted:
        event = self._accepted(spec, key)
        new = new_event(event.event_id, event.payload, event.metadata)
        command = AppendCommand(
            streams=(StreamAppend(event.stream_id, (new,), expected_version=0),),
            idempotency_key=key,
            result=FirstUse(spec.request_id, digest).encode(),
        )
        if turn is not None:
            command = turn.command(command, event)
        result = await self._appender.append(command)
        # A repeat may be this very append, tried again after the database did not answer.
        if result.repeated and FirstUse.of(result).subject_id != spec.request_id:
            return await self._first(result, digest)
        self._accepted_count.add(1, {REQUEST_KIND: spec.kind.value, MODEL: spec.model_id})
        return Submitted(evolve(None, event), repeated=False)

    async def _first(self, result: AppendResult, digest: str) -> Submitted:
        first = FirstUse.of(result)
        first.require_same(digest)
        state = await read_request(self._log, first.subject_id)
        if state is None:
            raise CorruptLog(f"a key names request {first.subject_id}, which is not in the log")
        if state.deleted_at is not None:
            raise AlreadyExists(
                "the request that this key made was deleted; a new one takes a new key",
                reason="REQUEST_DELETED",
                subject="idempotency_key",
            )
        return Submitted(as_of(state, self._clock.now()), repeated=True)

    def _accepted(self, spec: RequestSpec, key: str | None) -> Event:
        now = self._clock.now()
        name = RequestAccepted.__name__
        return Event(
            event_id=keyed_event_id(key) if key else new_id("evt", milliseconds(now)),
            stream_id=stream_of(spec.request_id),
            stream_version=1,
            type=name,
            name=NAMES[name],
            schema_version=UPCASTERS.version_of(name),
            metadata=request_metadata(spec, now, current_traceparent()),
            recorded_at=now,
            payload=RequestAccepted(spec=spec),
        )
