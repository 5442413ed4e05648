"""A key for each tenant, under which what the tenant wrote is sealed.

The database has the keys under the master key, which only the services' configuration knows.
Erasing a tenant deletes its key and leaves the key's id, so that what was sealed under it reads
as erased rather than as broken.
"""

import base64
import binascii
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fastvideo.errors import CorruptLog, FailedPrecondition, InvalidField
from fastvideo.events.postgres_pool import PostgresPool

MASTER_KEY_VARIABLE: Final = "FASTVIDEO_MASTER_KEY"
"""Where every service that opens a log has its master key from; errors name it."""

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12

ERASURE_S_MAX: Final = 30.0
"""How long a running process may still read with a key that was erased."""

KEYS_CACHED_MAX: Final = 4_096

_FIND: Final = """
SELECT tenant_id, wrapped_key FROM tenant_keys WHERE key_id = $1
"""

_LIVE: Final = """
SELECT key_id, wrapped_key FROM tenant_keys WHERE tenant_id = $1 AND erased_at IS NULL
"""

_SOME: Final = """
SELECT key_id, tenant_id, wrapped_key FROM tenant_keys WHERE erased_at IS NULL LIMIT 16
"""

# Of several who make a tenant's key at once, the first one's is kept.
_MAKE: Final = """
INSERT INTO tenant_keys (key_id, tenant_id, wrapped_key) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING
"""

_ERASE: Final = """
UPDATE tenant_keys SET wrapped_key = NULL, erased_at = clock_timestamp()
WHERE tenant_id = $1 AND erased_at IS NULL
"""

_ERASED: Final = """
SELECT key_id FROM tenant_keys WHERE tenant_id = $1 AND erased_at IS NOT NULL ORDER BY key_id
"""


@dataclass(frozen=True, slots=True)
class TenantKey:
    """A tenant's key; without `key` it was erased."""

    key_id: str
    tenant_id: str
    key: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class MasterKey:
    """The key of keys: 32 bytes."""

    key: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "MasterKey":
        """The key of its 64 hexadecimal digits or its base64. Raises InvalidField."""
        text = text.strip()
        try:
            key = bytes.fromhex(text) if len(text) == 2 * KEY_BYTES else _base64(text)
        except ValueError as error:
            raise _wrong_master_key() from error
        if len(key) != KEY_BYTES:
            raise _wrong_master_key()
        return cls(key)

    def wrap(self, tenant_key: TenantKey) -> bytes:
        """The tenant's key as the database keeps it."""
        assert tenant_key.key is not None
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + AESGCM(self.key).encrypt(nonce, tenant_key.key, _bound(tenant_key))

    def unwrap(self, key_id: str, tenant_id: str, wrapped: bytes | None) -> TenantKey:
        """The key of a row. Raises FailedPrecondition, MASTER_KEY, under another master key."""
        erased = TenantKey(key_id, tenant_id, None)
        if wrapped is None:
            return erased
        nonce, sealed = wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:]
        try:
            key = AESGCM(self.key).decrypt(nonce, sealed, _bound(erased))
        except InvalidTag as error:
            raise FailedPrecondition(
                f"key {key_id} of a tenant was made under another master key than "
                f"{MASTER_KEY_VARIABLE}",
                reason="MASTER_KEY",
                subject=MASTER_KEY_VARIABLE,
            ) from error
        return TenantKey(key_id, tenant_id, key)


class TenantKeys(Protocol):
    """The keys of tenants."""

    async def live(self, tenant_id: str) -> TenantKey:
        """The key to seal with, made when the tenant has none."""
        ...

    async def find(self, key_id: str) -> TenantKey:
        """The key of an id, erased or not. Raises CorruptLog, KEY_UNKNOWN, when none ever was."""
        ...

    async def erase(self, tenant_id: str) -> tuple[str, ...]:
        """Delete the tenant's key for ever; the ids of all of its erased keys."""
        ...


class PostgresTenantKeys:
    """`TenantKeys` in the log's database."""

    def __init__(self, pool: PostgresPool, master: MasterKey) -> None:
        self._pool = pool
        self._master = master

    async def check(self) -> None:
        """Raise FailedPrecondition, MASTER_KEY, when the master key opens none of some."""
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_SOME)
        refused: FailedPrecondition | None = None
        for row in rows:
            try:
                self._master.unwrap(row["key_id"], row["tenant_id"], row["wrapped_key"])
                return
            except FailedPrecondition as error:
                refused = error
        if refused is not None:
            raise refused

    async def live(self, tenant_id: str) -> TenantKey:
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_LIVE, tenant_id)
            if row is None:
                made = _made(tenant_id)
                wrapped = self._master.wrap(made)
                await connection.execute(_MAKE, made.key_id, tenant_id, wrapped)
                row = await connection.fetchrow(_LIVE, tenant_id)
        if row is None:
            raise CorruptLog("a tenant's key went away as it was made", reason="KEY_UNKNOWN")
        return self._master.unwrap(row["key_id"], tenant_id, row["wrapped_key"])

    async def find(self, key_id: str) -> TenantKey:
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_FIND, key_id)
        if row is None:
            raise unknown_key(key_id)
        return self._master.unwrap(key_id, row["tenant_id"], row["wrapped_key"])

    async def erase(self, tenant_id: str) -> tuple[str, ...]:
        return await erase_keys(self._pool, tenant_id)


class MemoryTenantKeys:
    """`TenantKeys` in this process."""

    def __init__(self) -> None:
        self._keys: dict[str, TenantKey] = {}
        self._live: dict[str, str] = {}

    async def live(self, tenant_id: str) -> TenantKey:
        if tenant_id not in self._live:
            made = _made(tenant_id)
            self._keys[made.key_id] = made
            self._live[tenant_id] = made.key_id
        return self._keys[self._live[tenant_id]]

    async def find(self, key_id: str) -> TenantKey:
        if key_id not in self._keys:
            raise unknown_key(key_id)
        return self._keys[key_id]

    async def erase(self, tenant_id: str) -> tuple[str, ...]:
        self._live.pop(tenant_id, None)
        for key in [k for k in self._keys.values() if k.tenant_id == tenant_id]:
            self._keys[key.key_id] = TenantKey(key.key_id, tenant_id, None)
        return tuple(sorted(k.key_id for k in self._keys.values() if k.tenant_id == tenant_id))


class CachedTenantKeys:
    """`TenantKeys` with the last found ones in memory, each for `ERASURE_S_MAX` at most.

    `forget` drops a tenant's at once. The key to seal with is always asked for: what is sealed
    under a key that was erased meanwhile could never be read.
    """

    def __init__(self, keys: TenantKeys, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock_s = clock_s
        # By key id: the key, and until when it is good.
        self._found: OrderedDict[str, tuple[TenantKey, float]] = OrderedDict()

    async def live(self, tenant_id: str) -> TenantKey:
        return self._keep(await self._keys.live(tenant_id))

    async def find(self, key_id: str) -> TenantKey:
        key, good_until_s = self._found.get(key_id, (None, 0.0))
        if key is None or self._clock_s() >= good_until_s:
            return self._keep(await self._keys.find(key_id))
        self._found.move_to_end(key_id)
        return key

    async def erase(self, tenant_id: str) -> tuple[str, ...]:
        self.forget(tenant_id)
        erased = await self._keys.erase(tenant_id)
        self.forget(tenant_id)
        return erased

    def forget(self, tenant_id: str) -> None:
        """Drop the tenant's keys: they are asked for again."""
        for key_id in [i for i, (key, _) in self._found.items() if key.tenant_id == tenant_id]:
            del self._found[key_id]

    def _keep(self, key: TenantKey) -> TenantKey:
        self._found[key.key_id] = (key, self._clock_s() + ERASURE_S_MAX)
        self._found.move_to_end(key.key_id)
        while len(self._found) > KEYS_CACHED_MAX:
            self._found.popitem(last=False)
        return key


async def erase_keys(pool: PostgresPool, tenant_id: str) -> tuple[str, ...]:
    """Delete the tenant's key; the ids of all of its erased ones. It takes no master key."""
    async with pool.connection() as connection, connection.transaction():
        await connection.execute(_ERASE, tenant_id)
        rows = await connection.fetch(_ERASED, tenant_id)
    return tuple(row["key_id"] for row in rows)


def unknown_key(key_id: str) -> CorruptLog:
    """The error of content whose key nobody knows: neither erased nor there."""
    return CorruptLog(f"key {key_id} is not known", reason="KEY_UNKNOWN", subject=key_id)


def _made(tenant_id: str) -> TenantKey:
    stamp = datetime.now(UTC).strftime("%Y%m%d")
    return TenantKey(
        f"key_{stamp}_{secrets.token_hex(12)}", tenant_id, AESGCM.generate_key(8 * KEY_BYTES)
    )


def _bound(key: TenantKey) -> bytes:
    """What a wrapped key belongs to: it opens for no other tenant and under no other id."""
    return f"{key.key_id}/{key.tenant_id}".encode()


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError from error


def _wrong_master_key() -> InvalidField:
    # The value itself must not be told.
    allowed = "32 bytes, as 64 hexadecimal digits or base64"
    return InvalidField(MASTER_KEY_VARIABLE, "(hidden)", allowed)
