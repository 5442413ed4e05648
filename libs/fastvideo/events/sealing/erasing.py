"""Erase what a tenant wrote: its key goes, and a TenantErased tells everybody who has copies."""

from dataclasses import dataclass
from typing import Final

from fastvideo.clock import Clock, SystemClock, milliseconds
from fastvideo.errors import FailedPrecondition, InvalidField
from fastvideo.events.catalog import new_event, payload_of
from fastvideo.events.postgres_pool import PostgresPool
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.recovery import append_surely
from fastvideo.events.sealing.keys import erase_keys
from fastvideo.events.store import EventStore
from fastvideo.events.types import EventMetadata
from fastvideo.events.unfinished import unfinished_requests
from fastvideo.ids import new_id
from fastvideo.requests.sealing import TenantErased

STREAM_PREFIX: Final = "tenant-"
REASON_CHARACTERS_MAX: Final = 500
REQUESTS_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Erased:
    """What an erasure did."""

    tenant_id: str
    # All keys of the tenant that are gone, of earlier erasures too.
    key_ids: tuple[str, ...]
    # Nothing was left to erase, and the log says so already.
    repeated: bool


async def erase_tenant(
    log: EventStore,
    pool: PostgresPool,
    tenant_id: str,
    reason: str,
    *,
    force: bool = False,
    artifacts: bool = True,
    shard: str = "0",
    clock: Clock | None = None,
) -> Erased:
    """Erase a tenant's key, and say in the log that it was done and why.

    Whoever dies in between may be repeated; a second time changes nothing. Saved terms are
    deleted: they hold requests as they were, and are made again from the log. With `artifacts` the
    artifact service gives up what the tenant has stored until now; it reads of it in the log.

    Raises InvalidField for a reason that is empty or too long, and FailedPrecondition,
    TENANT_BUSY, while requests of the tenant are under way, unless it is to be forced: they would
    go on with an empty prompt once their scheduler was restarted.
    """
    if not 0 < len(reason) <= REASON_CHARACTERS_MAX:
        raise InvalidField("reason", reason, f"1 to {REASON_CHARACTERS_MAX} characters")
    if not force:
        await _check_idle(log, tenant_id, shard)
    key_ids = await erase_keys(pool, tenant_id)
    async with pool.connection() as connection:
        await connection.execute("DELETE FROM snapshots")
    stream_id = f"{STREAM_PREFIX}{tenant_id}"
    version = await log.stream_version(stream_id)
    told = await _last_erasure(log, stream_id)
    # Without a key nothing says whether the tenant has stored anything since.
    said_so = told is not None and told.key_ids == key_ids and told.artifacts >= artifacts
    if said_so and (key_ids or not artifacts):
        return Erased(tenant_id, key_ids, repeated=True)
    now = (clock or SystemClock()).now()
    erased = TenantErased(tenant_id=tenant_id, key_ids=key_ids, reason=reason, artifacts=artifacts)
    metadata = EventMetadata(tenant_id=tenant_id, occurred_at=now)
    event = new_event(new_id("evt", milliseconds(now)), erased, metadata)
    await append_surely(log, AppendCommand((StreamAppend(stream_id, (event,), version),)))
    return Erased(tenant_id, key_ids, repeated=False)


async def _last_erasure(log: EventStore, stream_id: str) -> TenantErased | None:
    """What the stream said last of erasures; it has the tenant's API keys and policies, too."""
    last: TenantErased | None = None
    version = 0
    while page := await log.read_stream(stream_id, version):
        for stored in page:
            if stored.type == TenantErased.__name__:
                told = payload_of(stored)
                assert isinstance(told, TenantErased)
                last = told
        version = page[-1].stream_version
    return last


async def _check_idle(log: EventStore, tenant_id: str, shard: str) -> None:
    marks = await log.load_checkpoint(f"scheduler-{shard}")
    busy = await unfinished_requests(log, tenant_id, marks)
    if busy:
        named = ", ".join(busy[:REQUESTS_NAMED_MAX])
        rest = len(busy) - REQUESTS_NAMED_MAX
        more = f" and {rest} more" if rest > 0 else ""
        raise FailedPrecondition(
            f"requests of tenant {tenant_id} are under way: {named}{more}; cancel them first",
            reason="TENANT_BUSY",
            subject=tenant_id,
            attributes={"requests": str(len(busy))},
        )
