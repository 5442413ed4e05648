"""Every tenant's keys and policy, as the log has them, in memory and up to date.

The streams of tenants are read whole before the gateway is ready, and followed from there: what
another replica appends is known here within a poll, at most a second later.

What cannot be read in a tenant's stream, since a newer gateway wrote it or it is damaged, may end a
key or lower a quota. Whoever cannot read it does not know what the tenant may do any more, and lets
it do nothing. The others are followed on, past whatever is damaged.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from fastvideo.errors import CorruptLog, Unavailable
from fastvideo.events.records import StoredEvent
from fastvideo.events.store import EventLog
from fastvideo.events.subscription import LogSubscription, PollLimits
from fastvideo.events.types import Event
from fastvideo.events.views import event_for_view
from fastvideo.events.wakeups import Wakeups
from fastvideo.requests.tenant_state import (
    STREAM_PREFIX,
    ApiKey,
    TenantState,
    evolve,
)
from fastvideo.requests.tenants import TenantPolicy
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

RETRY_S: Final = 0.2
READS_AT_ONCE: Final = 4
EVENTS_PER_READ: Final = 500

OnKey = Callable[[], None]


class TenantDirectory:
    """Looks up keys and policies. Until it has read the log, whoever asks is told to wait."""

    def __init__(
        self, log: EventLog, wakeups: Wakeups | None = None, polling: PollLimits | None = None
    ) -> None:
        self._log = log
        self._wakeups = wakeups
        self._polling = polling
        self._tenants: dict[str, TenantState] = {}
        self._tenant_of_key: dict[str, str] = {}
        # Tenants of whom something is written that cannot be read here.
        self._unreadable: set[str] = set()
        self._changed = asyncio.Condition()
        self._loaded = False
        self._listeners: defaultdict[str, set[OnKey]] = defaultdict(set)

    @property
    def loaded(self) -> bool:
        """Whether it knows all that was in the log when it began."""
        return self._loaded

    @property
    def tenant_ids(self) -> tuple[str, ...]:
        """Tenants that have a stream. Raises Unavailable."""
        self._require_loaded()
        return tuple(sorted(self._tenants))

    def tenant(self, tenant_id: str) -> TenantState:
        """A tenant; one that nobody ever named has no keys and no limits. Raises Unavailable."""
        self._require_loaded()
        return self._tenants.get(tenant_id) or TenantState(tenant_id=tenant_id)

    def policy_of(self, tenant_id: str) -> TenantPolicy:
        """What a tenant may use. Raises Unavailable, also when that is not known here."""
        self._require_readable(tenant_id)
        return self.tenant(tenant_id).policy

    def key(self, key_id: str) -> ApiKey | None:
        """A key by its id, good or not; None when there is none.

        Raises Unavailable, also when it is not known here whether the key is good.
        """
        self._require_loaded()
        tenant_id = self._tenant_of_key.get(key_id)
        if tenant_id is None:
            return None
        self._require_readable(tenant_id)
        return self._tenants[tenant_id].keys[key_id]

    @contextmanager
    def listening(self, key_id: str, on_key: OnKey) -> Iterator[None]:
        """Call back when what is known of a key changes, for as long as the block lasts."""
        listeners = self._listeners[key_id]
        listeners.add(on_key)
        try:
            yield
        finally:
            listeners.discard(on_key)
            if not listeners:
                self._listeners.pop(key_id, None)

    async def reached(self, tenant_id: str, version: int, timeout_s: float) -> bool:
        """Wait until a tenant's stream is known up to a version; whether it was in time."""

        def known() -> bool:
            state = self._tenants.get(tenant_id)
            return state is not None and state.version >= version

        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(known)
        except TimeoutError:
            return False
        return True

    async def until_loaded(self, timeout_s: float) -> bool:
        """Wait until it has read the log; whether it had in time."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self._loaded)
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Read and follow, for ever; ends by cancellation."""
        while True:
            heads = await self._load()
            try:
                await self._follow(heads)
            except CorruptLog as error:
                # Whose event it is, if a tenant's at all, its stream tells.
                _LOG.error("tenants are read anew", error=error.message)
            await asyncio.sleep(RETRY_S)

    async def _follow(self, heads: Mapping[int, int]) -> None:
        subscription = LogSubscription(self._log, heads, self._wakeups, self._polling)
        while True:
            batch = await subscription.next_batch()
            mine = [stored for stored in batch if stored.stream_id.startswith(STREAM_PREFIX)]
            if mine:
                self._take(mine)
                await self._tell()

    async def _load(self) -> Mapping[int, int]:
        """Read every tenant's stream; the heads that the log had before."""
        while True:
            try:
                heads = await self._log.heads()
                await self._read_all()
                break
            except Unavailable as error:
                _LOG.warning("keys wait for the database", error=error.message)
                await asyncio.sleep(RETRY_S)
        self._loaded = True
        await self._tell()
        return heads

    async def _read_all(self) -> None:
        turns = asyncio.Semaphore(READS_AT_ONCE)
        after = ""
        while stream_ids := await self._log.stream_ids(STREAM_PREFIX, after):
            async with asyncio.TaskGroup() as group:
                for stream_id in stream_ids:
                    group.create_task(self._read(stream_id, turns))
            after = stream_ids[-1]

    async def _read(self, stream_id: str, turns: asyncio.Semaphore) -> None:
        version = 0
        async with turns:
            try:
                while page := await self._log.read_stream(stream_id, version, EVENTS_PER_READ):
                    self._take(page)
                    version = page[-1].stream_version
            except CorruptLog as error:
                self._give_up(stream_id.removeprefix(STREAM_PREFIX), error.message)

    def _take(self, events: tuple[StoredEvent, ...] | list[StoredEvent]) -> None:
        for stored in events:
            tenant_id = stored.stream_id.removeprefix(STREAM_PREFIX)
            before = self._tenants.get(tenant_id) or TenantState(tenant_id=tenant_id)
            event = self._read_one(stored, tenant_id)
            if event is None:
                continue
            after = self._tenants[tenant_id] = evolve(before, event)
            for key_id, key in after.keys.items():
                if before.keys.get(key_id) is not key:
                    self._tenant_of_key[key_id] = tenant_id
                    self._call(key_id)

    def _read_one(self, stored: StoredEvent, tenant_id: str) -> Event | None:
        """The event; None when it cannot be read, and then the tenant is given up."""
        try:
            event = event_for_view(stored, "tenants")
        except CorruptLog as error:
            self._give_up(tenant_id, error.message)
            return None
        if event is None:
            self._give_up(tenant_id, f"a newer program wrote {stored.type}")
        return event

    def _give_up(self, tenant_id: str, why: str) -> None:
        """Let a tenant do nothing here."""
        if tenant_id not in self._unreadable:
            _LOG.error("tenant refused", tenant_id=tenant_id, error=why)
        self._unreadable.add(tenant_id)
        tenant = self._tenants.get(tenant_id)
        for key_id in tenant.keys if tenant else ():
            self._call(key_id)

    def _call(self, key_id: str) -> None:
        for on_key in tuple(self._listeners.get(key_id, ())):
            on_key()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _require_loaded(self) -> None:
        if not self._loaded:
            raise Unavailable("keys are still being read; try again", subject="keys")

    def _require_readable(self, tenant_id: str) -> None:
        if tenant_id in self._unreadable:
            raise Unavailable(
                "what is written of this tenant cannot be read here: try again, where a newer "
                "gateway wrote it there, or once the log is whole",
                reason="TENANT_UNREADABLE",
                subject="tenant",
            )
