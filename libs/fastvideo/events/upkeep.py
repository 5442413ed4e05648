"""What the log needs from time to time: room ahead, and an end to what is kept for repeats."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import asyncpg

from fastvideo.errors import FastVideoError
from fastvideo.events.postgres_pool import PostgresPool
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

# Of the range that is being filled, how much may be left when the next is made.
_NEEDS_ROOM: Final = """
SELECT partition, ranged_to FROM partitions WHERE ranged_to - next_offset < range_size / 2
"""

# Two transactions: whoever makes a range waits for nobody who holds a partition's counter.
_MAKE_RANGE: Final = "SELECT extend_events($1, $2)"

_TELL: Final = """
UPDATE partitions SET ranged_to = greatest(ranged_to, $2) WHERE partition = $1
"""

# One process at a time: two that delete the same rows could wait for one another.
_FORGET_COMMANDS: Final = """
DELETE FROM commands WHERE idempotency_key IN (
    SELECT idempotency_key FROM commands
    WHERE recorded_at < clock_timestamp() - $1::interval LIMIT $2
)
AND (SELECT pg_try_advisory_xact_lock(hashtext('forget_commands')))
"""


@dataclass(frozen=True, slots=True)
class UpkeepPolicy:
    """How often to look, and for how long an idempotency key is remembered."""

    every_s: float = 10.0
    keys_kept: timedelta = timedelta(days=30)
    keys_per_statement_max: int = 10_000


async def run_upkeep(dsn: str, policy: UpkeepPolicy | None = None) -> None:
    """Keep the log in order, for ever; ends by cancellation. Several processes may."""
    policy = policy or UpkeepPolicy()
    pool = await PostgresPool.open(dsn, connections_max=1)
    try:
        while True:
            try:
                await make_room(pool)
                await forget_commands(pool, policy)
            except (FastVideoError, asyncpg.PostgresError) as error:
                # Nobody waits for it, and appends make room themselves: it is tried again.
                _LOG.warning("upkeep failed", error=str(error))
            await asyncio.sleep(policy.every_s)
    finally:
        await pool.close()


async def make_room(pool: PostgresPool) -> int:
    """Make the next range of every partition whose last one is half full; how many."""
    async with pool.connection() as connection:
        rows = await connection.fetch(_NEEDS_ROOM)
        for row in rows:
            end = await connection.fetchval(_MAKE_RANGE, row["partition"], row["ranged_to"] + 1)
            await connection.execute(_TELL, row["partition"], end)
    return len(rows)


async def forget_commands(pool: PostgresPool, policy: UpkeepPolicy) -> int:
    """Forget idempotency keys of commands that are older than `keys_kept`; how many."""
    forgotten = 0
    while True:
        async with pool.connection() as connection:
            status = await connection.execute(
                _FORGET_COMMANDS, policy.keys_kept, policy.keys_per_statement_max
            )
        count = int(status.rsplit(" ", 1)[-1])
        forgotten += count
        if count < policy.keys_per_statement_max:
            return forgotten
