"""Which tenants were erased, and when: kept by projections that hold what tenants wrote.

What was written before the erasure is blank in the rows, whichever of the two a projection takes
in first: partitions have no order among them, and rows are a function of the log alone.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from fastvideo.events.catalog import payload_of
from fastvideo.events.postgres_pool import Connection
from fastvideo.events.records import StoredEvent
from fastvideo.requests.sealing import TenantErased

ERASED_TABLE: Final = """
CREATE TABLE {schema}.erased (
    tenant_id text COLLATE "C" NOT NULL PRIMARY KEY,
    at timestamptz NOT NULL
)
"""
"""A statement of a projection's layout."""

_TAKE_IN: Final = """
INSERT INTO erased AS e VALUES ($1, $2)
ON CONFLICT (tenant_id) DO UPDATE SET at = greatest(e.at, excluded.at)
"""


def erasures(events: Sequence[StoredEvent]) -> Mapping[str, datetime]:
    """When tenants were last erased, by what these events say."""
    found: dict[str, datetime] = {}
    for stored in events:
        if stored.type == TenantErased.__name__:
            payload = payload_of(stored)
            assert isinstance(payload, TenantErased)
            found[payload.tenant_id] = stored.recorded_at
    return found


async def take_in_erasures(
    connection: Connection, events: Sequence[StoredEvent]
) -> tuple[str, ...]:
    """Keep the erasures among the events; the tenants whose rows must be blanked now."""
    found = erasures(events)
    for tenant_id, at in found.items():
        await connection.execute(_TAKE_IN, tenant_id, at)
    return tuple(found)


async def erased_at(connection: Connection, tenant_ids: Collection[str]) -> Mapping[str, datetime]:
    """When these tenants were last erased; absent for those who never were."""
    if not tenant_ids:
        return {}
    rows = await connection.fetch(
        "SELECT tenant_id, at FROM erased WHERE tenant_id = ANY($1)", sorted(tenant_ids)
    )
    return {row["tenant_id"]: row["at"] for row in rows}
