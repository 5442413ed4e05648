"""After the database was restored from a backup: a new epoch of the log.

What was appended after the backup is gone, and its offsets will be given again to other events.
Readers that remember the undone history must not take the two for one: positions on the bus
carry the log's epoch, projections of another epoch are made anew, and leases jump beyond every
epoch that a worker may have seen before. Saved terms stay: of another epoch they are not folded,
and tell the next leader that workers may be ahead of the log.
"""

from typing import Final

import asyncpg

from fastvideo.errors import FailedPrecondition, Unavailable
from fastvideo.events.postgres_pool import NOT_MIGRATED

# More changes of a lease's holder than there can have been since the backup.
LEASE_EPOCHS_SKIPPED: Final = 1_000_000

_RAISE = "UPDATE partitions SET log_epoch = log_epoch + 1 RETURNING log_epoch"

# Nobody has read further than the log goes.
_REWIND = """
UPDATE checkpoints c SET "offset" = least(c."offset", p.next_offset - 1)
FROM partitions p WHERE p.partition = c.partition
"""

_SKIP = "UPDATE leases SET epoch = epoch + $1, expires_at = clock_timestamp()"


async def begin_log_epoch(dsn: str) -> int:
    """Raise the log's epoch; gives the new one. To be called once after a restore, before the
    services start again; a second time costs no more than the first.

    `dsn` is a `postgresql://` URL of a role that may write to the log's tables. Raises
    FailedPrecondition when there is no log, Unavailable when the database does not answer.
    """
    try:
        connection = await asyncpg.connect(dsn, timeout=10.0)
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise Unavailable("the event log's database does not answer", subject="postgres") from error
    try:
        async with connection.transaction():
            rows = await connection.fetch(_RAISE)
            await connection.execute(_REWIND)
            await connection.execute(_SKIP, LEASE_EPOCHS_SKIPPED)
    except NOT_MIGRATED as error:
        raise FailedPrecondition(
            "there is no event log in this database", reason="SCHEMA"
        ) from error
    finally:
        await connection.close()
    if not rows:
        raise FailedPrecondition("the event log has no partitions", reason="SCHEMA")
    return int(max(row["log_epoch"] for row in rows))
