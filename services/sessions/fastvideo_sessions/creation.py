"""Create: a new session, once for each idempotency key."""

from typing import Final

from fastvideo import wire
from fastvideo.api.common.v1 import session_pb2
from fastvideo.api.sessions.v1 import sessions_pb2
from fastvideo.clock import Clock, milliseconds
from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import InvalidField
from fastvideo.events.first_use import FirstUse, asked_digest, keyed_event_id, lookup, scoped_key
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.store import Appends, EventLog
from fastvideo.ids import new_id
from fastvideo.sessions.commands import CreateSession
from fastvideo.sessions.events import SessionCreated
from fastvideo.sessions.recording import Cause
from fastvideo.sessions.state import decide, stream_of
from fastvideo.sessions.types import ModelBinding, SessionConditioning, SessionState
from fastvideo_sessions.book import SessionBook

MODELS_MAX: Final = 16
USER_ID_CHARACTERS_MAX: Final = 200
TIMEOUT_S_MAX: Final = 7 * 86_400
PROMPTS_MAX: Final = 200


class Creator:
    """Makes sessions."""

    def __init__(
        self,
        log: EventLog,
        appender: Appends,
        book: SessionBook,
        catalog: Catalog,
        clock: Clock,
        *,
        inactivity_timeout_s: int,
        prompt_memory_limit: int,
    ) -> None:
        self._log = log
        self._appender = appender
        self._book = book
        self._catalog = catalog
        self._clock = clock
        self._inactivity_timeout_s = inactivity_timeout_s
        self._prompt_memory_limit = prompt_memory_limit

    async def create(
        self, message: sessions_pb2.CreateSessionRequest, tenant_id: str
    ) -> SessionState:
        """The new session, or the one that its key had made before.

        Raises NotFound for a model that there is not, InvalidField for a value out of range and
        AlreadyExists for a key that was used for something else.
        """
        key = scoped_key("session", tenant_id, message.idempotency_key)
        digest = asked_digest(message)
        if key is not None and await self._log.position_of(keyed_event_id(key)) is not None:
            result = await self._appender.append(lookup(key))
            first = FirstUse.of(result)
        else:
            created = self._created(message, tenant_id)
            result = await self._appender.append(self._command(created, key, digest))
            first = FirstUse.of(result)
            if first.subject_id == created.state.session_id:
                return created.state
        first.require_same(digest)
        return await self._book.read(first.subject_id, tenant_id)

    def _created(
        self, message: sessions_pb2.CreateSessionRequest, tenant_id: str
    ) -> SessionCreated:
        now = self._clock.now()
        command = CreateSession(
            session_id=new_id("ses", milliseconds(now)),
            tenant_id=tenant_id,
            user_id=_user_id(message.user_id),
            model_bindings=self._bindings(tuple(message.model_ids)),
            inactivity_timeout_s=_bounded(
                "inactivity_timeout_s",
                message.inactivity_timeout_s,
                TIMEOUT_S_MAX,
                self._inactivity_timeout_s,
            ),
            prompt_memory_limit=_bounded(
                "prompt_memory_limit",
                message.prompt_memory_limit,
                PROMPTS_MAX,
                self._prompt_memory_limit,
            ),
            conditioning=wire.enum_from_proto(
                SessionConditioning,
                session_pb2.SessionConditioning.DESCRIPTOR,
                message.conditioning,
                "conditioning",
            ),
            at=now,
        )
        (created,) = decide(None, command)
        assert isinstance(created, SessionCreated)  # A creation leads to nothing else.
        return created

    def _bindings(self, model_ids: tuple[str, ...]) -> tuple[ModelBinding, ...]:
        if len(model_ids) > MODELS_MAX:
            raise InvalidField("model_ids", f"{len(model_ids)} models", f"at most {MODELS_MAX}")
        if len(set(model_ids)) != len(model_ids):
            raise InvalidField("model_ids", model_ids, "each model once")
        entries = map(self._catalog.get, model_ids)
        return tuple(
            ModelBinding(model_id=entry.card.model_id, card_digest=entry.card_digest)
            for entry in entries
        )

    def _command(self, created: SessionCreated, key: str | None, digest: str) -> AppendCommand:
        state = created.state
        event_id = keyed_event_id(key) if key else ""
        event = self._book.event_of(state, created, Cause(), event_id)
        return AppendCommand(
            streams=(StreamAppend(stream_of(state.session_id), (event,), expected_version=0),),
            idempotency_key=key,
            result=FirstUse(state.session_id, digest).encode(),
        )


def _user_id(user_id: str) -> str:
    if len(user_id) > USER_ID_CHARACTERS_MAX or not user_id.isprintable():
        allowed = f"at most {USER_ID_CHARACTERS_MAX} printable characters"
        raise InvalidField("user_id", user_id, allowed)
    return user_id


def _bounded(field: str, value: int, largest: int, default: int) -> int:
    if value > largest:
        raise InvalidField(field, value, f"1 to {largest}; 0 takes {default}")
    return value or default
