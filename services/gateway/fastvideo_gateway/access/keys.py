"""Making and ending keys, and setting policies: events in the streams of tenants."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fastvideo.clock import Clock, milliseconds
from fastvideo.errors import Conflict, NotFound
from fastvideo.events.catalog import event_of, new_event
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.store import Appends, EventLog
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.ids import new_id
from fastvideo.requests.tenant_state import (
    ApiKey,
    TenantState,
    check_tenant_id,
    decide_create,
    decide_policy,
    decide_revoke,
    evolve,
    stream_of,
)
from fastvideo.requests.tenants import ApiKeyCreated, TenantPolicy
from fastvideo.rpc.api_keys import ApiToken
from fastvideo.rpc.identity import current_caller
from fastvideo.rpc.paging import PagePosition, checked_page_size, page_position, page_token
from fastvideo.telemetry.tracing import current_traceparent
from fastvideo_gateway.access.directory import TenantDirectory

# Somebody else may append meanwhile; each try sees a newer version.
TRIES_MAX: Final = 8
EVENTS_PER_READ: Final = 500
# What is written is known here at once; a log that is slow to be read does not hold the answer up.
SEEN_S_MAX: Final = 10.0

Decide = Callable[[TenantState], EventPayload | None]


@dataclass(frozen=True, slots=True)
class KeyPage:
    """Some keys, and the token for the next; an empty token says there are no more."""

    keys: tuple[ApiKey, ...]
    next_page_token: str


class Keys:
    """What operators do with keys and policies. Decides by the log, not by what is in memory."""

    def __init__(
        self, log: EventLog, appender: Appends, directory: TenantDirectory, clock: Clock
    ) -> None:
        self._log = log
        self._appender = appender
        self._directory = directory
        self._clock = clock

    async def create(
        self, tenant_id: str, name: str, role: str, expires_at: datetime | None
    ) -> tuple[ApiKey, ApiToken]:
        """A new key and its secret, which is kept nowhere. Raises as `decide_create` does."""
        now = self._clock.now()
        token = ApiToken.new(new_id("ak", milliseconds(now)))
        asked = ApiKeyCreated(
            key_id=token.key_id,
            tenant_id=tenant_id,
            name=name,
            role=role,
            secret_sha256=token.secret_sha256,
            expires_at=expires_at,
            created_by=current_caller().key_id,
        )
        state = await self._append(tenant_id, lambda state: decide_create(state, asked, now))
        return state.keys[token.key_id], token

    async def revoke(self, key_id: str) -> ApiKey:
        """End a key. Raises NotFound."""
        known = self._directory.key(key_id)
        if known is None:
            raise NotFound(f"key {key_id} does not exist", subject="key_id")
        by = current_caller().key_id
        state = await self._append(known.tenant_id, lambda state: decide_revoke(state, key_id, by))
        return state.keys[key_id]

    async def set_policy(self, tenant_id: str, policy: TenantPolicy) -> TenantPolicy:
        """Set a tenant's policy. Raises InvalidField."""
        by = current_caller().key_id
        state = await self._append(tenant_id, lambda state: decide_policy(state, policy, by))
        return state.policy

    async def policy(self, tenant_id: str) -> TenantPolicy:
        """What a tenant may use. Raises InvalidField."""
        return (await self._read(tenant_id)).policy

    def page(self, tenant_id: str, *, page_size: int, token: str) -> KeyPage:
        """Keys, the newest first; of one tenant, or of all. Raises InvalidField."""
        size, filters = checked_page_size(page_size), ("keys", tenant_id)
        after = page_position(token, *filters)
        tenants = (tenant_id,) if tenant_id else self._directory.tenant_ids
        keys = [key for one in tenants for key in self._directory.tenant(one).keys.values()]
        keys.sort(key=_order, reverse=True)
        if after is not None:
            keys = [key for key in keys if _order(key) < (after.at, after.item_id)]
        if len(keys) <= size:
            return KeyPage(tuple(keys), "")
        last = keys[size - 1]
        position = PagePosition(last.created_at, last.key_id)
        return KeyPage(tuple(keys[:size]), page_token(position, *filters))

    async def _append(self, tenant_id: str, decide: Decide) -> TenantState:
        """Append what is decided, if anything is; the state after it, which is known here then."""
        for attempt in range(1, TRIES_MAX + 1):
            state = await self._read(tenant_id)
            payload = decide(state)
            if payload is None:
                break
            now = self._clock.now()
            about = EventMetadata(
                tenant_id=tenant_id, traceparent=current_traceparent(), occurred_at=now
            )
            event = new_event(new_id("evt", milliseconds(now)), payload, about)
            append = StreamAppend(stream_of(tenant_id), (event,), state.version)
            try:
                await self._appender.append(AppendCommand(streams=(append,)))
            except Conflict:
                if attempt == TRIES_MAX:
                    raise
                continue
            state = await self._read(tenant_id)
            break
        await self._directory.reached(tenant_id, state.version, SEEN_S_MAX)
        return state

    async def _read(self, tenant_id: str) -> TenantState:
        check_tenant_id(tenant_id)
        state = TenantState(tenant_id=tenant_id)
        while page := await self._log.read_stream(
            stream_of(tenant_id), state.version, EVENTS_PER_READ
        ):
            for stored in page:
                state = evolve(state, event_of(stored))
        return state


def _order(key: ApiKey) -> tuple[datetime, str]:
    return key.created_at, key.key_id
