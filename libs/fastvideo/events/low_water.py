"""Up to which offset everybody has read: what is below may leave the database.

Readers would find it in the archive too. That nobody needs it keeps them quick, and keeps an
operator from putting away what a broken reader has never seen.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from fastvideo.errors import FailedPrecondition
from fastvideo.events.postgres_pool import Connection, PostgresPool

RANGE_IN_USE: Final = "RANGE_IN_USE"
"""Reason of the refusal; its subject is the reader that is behind."""

# A reader that has a place in any partition reads all of them: none yet is at the beginning.
_CHECKPOINTS: Final = """
SELECT n.projection AS name, coalesce(c."offset", 0) AS "offset"
FROM (SELECT DISTINCT projection FROM checkpoints) n
LEFT JOIN checkpoints c ON c.projection = n.projection AND c.partition = $1
"""

_PROJECTIONS: Final = """
SELECT schemaname FROM pg_tables
WHERE tablename = 'positions' AND schemaname <> current_schema()
    -- Built beside, or put aside by a rebuild: nobody reads on from there.
    AND schemaname !~ '_(build|old)_[0-9a-f]+$'
    AND has_table_privilege(format('%I.%I', schemaname, tablename), 'SELECT')
ORDER BY schemaname
"""


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody who reads the log, and the last offset of a partition that it is done with."""

    name: str
    offset: int


async def readers(pool: PostgresPool, partition: int) -> tuple[Reader, ...]:
    """Every checkpoint and every projection, the one that is furthest behind first."""
    async with pool.connection() as connection:
        found = [Reader(*row) for row in await connection.fetch(_CHECKPOINTS, partition)]
        for row in await connection.fetch(_PROJECTIONS):
            found.append(await _projection(connection, row["schemaname"], partition))
    return tuple(sorted(found, key=lambda reader: (reader.offset, reader.name)))


async def check_read(
    pool: PostgresPool, partition: int, last_offset: int, without: Collection[str] = ()
) -> None:
    """Raise FailedPrecondition, RANGE_IN_USE, while somebody has not read up to an offset.

    `without` names readers that are gone for good.
    """
    behind = [r for r in await readers(pool, partition) if r.name not in without]
    if not behind or behind[0].offset >= last_offset:
        return
    reader = behind[0]
    attributes: Mapping[str, str] = {
        "partition": str(partition),
        "offset": str(reader.offset),
        "needed": str(last_offset),
    }
    raise FailedPrecondition(
        f"{reader.name} has read partition {partition} up to offset {reader.offset}, not to "
        f"{last_offset}: nothing is archived before everybody has read it",
        reason=RANGE_IN_USE,
        subject=reader.name,
        attributes=attributes,
    )


async def _projection(connection: Connection, schema: str, partition: int) -> Reader:
    quoted = await connection.fetchval("SELECT quote_ident($1)", schema)
    offset = await connection.fetchval(
        f'SELECT "offset" FROM {quoted}.positions WHERE partition = $1', partition
    )
    return Reader(schema, offset or 0)
