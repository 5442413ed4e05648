"""A projection in Postgres: its tables made when absent, filled from the log, rebuilt beside.

A projection holds nothing that the log does not. Its rows are a function of the log alone: no
clock, nothing random, no order but that of a partition's events. So a rebuilt one has equal rows,
and may take the place of the live one under its readers (`projections.rebuild`). Each version of
a layout has a schema of its own (`projections.schemas`), so a program with a new layout fills its
tables while the programs before it go on with theirs. The position by partition is kept beside
the rows, in the same transaction.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Self

from fastvideo.events.postgres_pool import Connection, PostgresPool
from fastvideo.events.projections.projector import fresh_events
from fastvideo.events.projections.schemas import (
    Layout,
    drop_left_behind,
    hold_fence,
    open_pool,
    prepare_live,
)
from fastvideo.events.records import StoredEvent

__all__ = ["Layout", "PostgresProjection"]

CONNECTIONS_MAX: Final = 4

_POSITION: Final = 'SELECT "offset" FROM positions WHERE partition = $1 FOR UPDATE'


class PostgresProjection(ABC):
    """A `Projection` that outlives the process and can be rebuilt from the log.

    A subclass names its `layout` and says in `_take_in` what events do to the rows; it reads
    them through `_pool`. Its statements name tables bare, without a schema.
    """

    layout: ClassVar[Layout]

    def __init__(self, pool: PostgresPool, schema: str) -> None:
        self._pool = pool
        self._schema = schema

    @classmethod
    async def open(cls, dsn: str, log_epoch: int) -> Self:
        """Connect, and make the tables anew when they are not of this log epoch.

        What rebuilds that were killed and older layouts left behind is dropped, unless somebody
        has it open.
        """
        pool = await open_pool(dsn, cls.layout.live, connections_max=CONNECTIONS_MAX)
        try:
            await prepare_live(pool, cls.layout, log_epoch)
            await drop_left_behind(pool, cls.layout)
        except BaseException:
            await pool.close()
            raise
        return cls(pool, cls.layout.live)

    async def positions(self) -> Mapping[int, int]:
        """The offset of the last event taken in, by partition."""
        async with self._pool.connection() as connection:
            rows = await connection.fetch('SELECT partition, "offset" FROM positions')
        return {row["partition"]: row["offset"] for row in rows}

    async def apply(self, events: Sequence[StoredEvent]) -> None:
        """Take in events of one partition and move its position, in one transaction.

        Those that were taken in before are passed over; the position is held meanwhile, so that
        several processes may project into the same rows. Raises CorruptLog at a gap.
        """
        if not events:
            return
        partition = events[0].partition
        async with self._pool.connection() as connection, connection.transaction():
            await hold_fence(connection, self._schema)
            fresh = fresh_events(events, await _hold_position(connection, partition))
            if not fresh:
                return
            await self._take_in(connection, fresh)
            await connection.execute(
                'UPDATE positions SET "offset" = $2 WHERE partition = $1',
                partition,
                fresh[-1].offset,
            )

    async def close(self) -> None:
        """Give back the connections."""
        await self._pool.close()

    @abstractmethod
    async def _take_in(self, connection: Connection, events: Sequence[StoredEvent]) -> None:
        """Change the rows as the events say; the position is moved by the caller."""


async def _hold_position(connection: Connection, partition: int) -> int:
    position: int | None = await connection.fetchval(_POSITION, partition)
    if position is None:
        await connection.execute(
            "INSERT INTO positions VALUES ($1, 0) ON CONFLICT DO NOTHING", partition
        )
        position = await connection.fetchval(_POSITION, partition)
    assert position is not None
    return position
