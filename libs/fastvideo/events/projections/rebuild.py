"""A projection built anew from the log beside the live one, compared with it, and swapped in.

Nobody waits for it. The live projection goes on while a second schema is filled from offset 1;
both are compared at the same positions, the live one as a snapshot of the database saw it; then
one transaction catches up what came meanwhile and renames. Whoever has the projection open finds
the new rows under the old names with the next statement.

A rebuild that is given up or killed has changed nothing: what it built is dropped when a service
that owns the projection starts, or by the next rebuild.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from fastvideo.errors import FailedPrecondition, Unavailable
from fastvideo.events.postgres_pool import Connection, PostgresPool
from fastvideo.events.projections.digest import compare
from fastvideo.events.projections.postgres import PostgresProjection
from fastvideo.events.projections.report import (
    RebuildPhase,
    RebuildProgress,
    RebuildReport,
    TableComparison,
)
from fastvideo.events.projections.schemas import (
    Layout,
    drop,
    drop_left_behind,
    hold_fence_alone,
    make_tables,
    open_pool,
    swap,
)
from fastvideo.events.records import StoredEvent
from fastvideo.events.store import EventLog
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

EVENTS_PER_READ: Final = 5_000
# How often the swap gives way to changes that do not end.
SWAP_ATTEMPTS_MAX: Final = 10
# A digest of all rows takes longer than a look-up.
CALL_TIMEOUT_S: Final = 3_600.0

_SNAPSHOT: Final[dict[str, Any]] = {"isolation": "repeatable_read", "readonly": True}

_REBUILDING: Final = "SELECT pg_try_advisory_lock(hashtextextended('rebuild:' || $1, 0))"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOptions:
    """What to do with what was built: swapped when it is equal, unless told otherwise."""

    # Compare only.
    check: bool = False
    # Swap also when the rows differ.
    swap_different: bool = False


@dataclass(frozen=True, slots=True)
class _Range:
    """Events of the log: those of a partition after an offset, so many at most."""

    partition: int
    after: int
    limit: int


@dataclass(slots=True)
class _Build:
    """A rebuild under way."""

    log: EventLog
    layout: Layout
    live_pool: PostgresPool
    live: PostgresProjection
    built_pool: PostgresPool
    built: PostgresProjection
    built_schema: str
    began: float = field(default_factory=time.monotonic)
    done: dict[int, int] = field(default_factory=dict)
    _ahead: "tuple[_Range, asyncio.Task[tuple[StoredEvent, ...]]] | None" = None

    def progress(self, phase: RebuildPhase, total: Mapping[int, int]) -> RebuildProgress:
        return RebuildProgress(
            phase=phase,
            events_done=sum(self.done.values()),
            events_total=sum(total.values()),
            seconds=time.monotonic() - self.began,
        )

    async def step(self, targets: Mapping[int, int]) -> bool:
        """Take in some events, none behind the targets; whether there were any."""
        wanted = self._next(targets, self.done)
        if wanted is None:
            return False
        events = await self._read(wanted)
        self.done[wanted.partition] = events[-1].offset
        following = self._next(targets, self.done)
        if following is not None:
            # The database reads on while these are folded.
            self._ahead = (following, asyncio.create_task(self._fetch(following)))
        await self.built.apply(events)
        return True

    def _next(self, targets: Mapping[int, int], done: Mapping[int, int]) -> "_Range | None":
        for partition, target in sorted(targets.items()):
            after = done.get(partition, 0)
            if after < target:
                return _Range(partition, after, min(EVENTS_PER_READ, target - after))
        return None

    async def _read(self, wanted: "_Range") -> tuple[StoredEvent, ...]:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            read, task = ahead
            events = await task
            # The targets may have moved on, never back.
            if read.partition == wanted.partition and read.after == wanted.after:
                return events[: wanted.limit]
        return await self._fetch(wanted)

    async def _fetch(self, wanted: "_Range") -> tuple[StoredEvent, ...]:
        return await self.log.read_partition(wanted.partition, wanted.after, wanted.limit)

    async def give_up(self) -> None:
        """End a read that nobody waits for."""
        if self._ahead is not None:
            self._ahead[1].cancel()
            await asyncio.gather(self._ahead[1], return_exceptions=True)

    async def reach(self, targets: Mapping[int, int]) -> None:
        """Take in all up to the targets."""
        while await self.step(targets):
            pass


async def rebuild(
    dsn: str, log: EventLog, projection: type[PostgresProjection], options: RebuildOptions
) -> AsyncGenerator[RebuildProgress | RebuildReport, None]:
    """Rebuild a projection; tells how far it is, and at last what came of it.

    Raises FailedPrecondition when the projection is being rebuilt already or the log was restored
    meanwhile, Unavailable when changes of the live rows never let the swap in; the live rows are
    as they were then.
    """
    layout = projection.layout
    async with _both_open(dsn, log, projection) as build:
        while True:
            targets = await build.live.positions()
            if not await build.step(targets):
                break
            yield build.progress(RebuildPhase.BUILDING, targets)
        yield build.progress(RebuildPhase.COMPARING, targets)
        positions, tables = await _compare(build)
        equal = all(table.equal for table in tables)
        swapped = not options.check and (equal or options.swap_different)
        if swapped:
            yield build.progress(RebuildPhase.SWAPPING, positions)
            await _swap(build)
        report = RebuildReport(
            projection=layout.schema,
            layout_version=layout.version,
            positions=positions,
            tables=tables,
            equal=equal,
            swapped=swapped,
            events=sum(build.done.values()),
            seconds=time.monotonic() - build.began,
        )
    # Whoever has the report may leave: nothing is left to clean.
    yield report


@asynccontextmanager
async def _both_open(
    dsn: str, log: EventLog, projection: type[PostgresProjection]
) -> AsyncIterator[_Build]:
    """The live projection and an empty one beside it, which is dropped unless it goes live."""
    layout = projection.layout
    schema = layout.beside("build")
    live_pool = await open_pool(dsn, layout.live, connections_max=3, call_timeout_s=CALL_TIMEOUT_S)
    # What is lost in a crash was not live: nobody need wait for the disk.
    built_pool = await open_pool(
        dsn,
        schema,
        connections_max=2,
        call_timeout_s=CALL_TIMEOUT_S,
        synchronous_commit="off",
    )
    try:
        async with live_pool.connection() as guard:
            # Held by this connection, and so given back when the process dies.
            if not await guard.fetchval(_REBUILDING, layout.live):
                raise FailedPrecondition(
                    f"{layout.schema} is being rebuilt already",
                    reason="REBUILD_RUNNING",
                    subject=layout.schema,
                )
            await drop_left_behind(live_pool, layout)
            async with built_pool.connection() as connection, connection.transaction():
                await make_tables(connection, schema, layout, await log.log_epoch())
            build = _Build(
                log=log,
                layout=layout,
                live_pool=live_pool,
                live=projection(live_pool, layout.live),
                built_pool=built_pool,
                built=projection(built_pool, schema),
                built_schema=schema,
            )
            try:
                yield build
            finally:
                await build.give_up()
    finally:
        await built_pool.close()
        await _drop_quietly(live_pool, layout, schema)
        await live_pool.close()


async def _drop_quietly(pool: PostgresPool, layout: Layout, schema: str) -> None:
    """Drop what was built or put aside; what cannot be dropped now goes at the next start."""
    try:
        await drop(pool, schema)
        await drop_left_behind(pool, layout)
    except Unavailable as error:
        _LOG.warning("rows of a rebuild stay behind", schema=schema, error=error.message)


async def _compare(build: _Build) -> tuple[Mapping[int, int], tuple[TableComparison, ...]]:
    """Bring the built rows to where a snapshot of the live ones stands, and compare them."""
    async with build.live_pool.connection() as live, live.transaction(**_SNAPSHOT):
        rows = await live.fetch('SELECT partition, "offset" FROM positions WHERE "offset" > 0')
        positions = {row["partition"]: row["offset"] for row in rows}
        await build.reach(positions)
        async with build.built_pool.connection() as built, built.transaction(**_SNAPSHOT):
            tables = await compare((live, build.layout.live), (built, build.built_schema))
    return positions, tables


async def _swap(build: _Build) -> None:
    """Rename under the fence, giving way to changes that are under way a number of times."""
    for attempt in range(1, SWAP_ATTEMPTS_MAX + 1):
        # Most of what came meanwhile, while the live rows still change.
        await build.reach(await build.live.positions())
        try:
            async with build.live_pool.connection() as connection, connection.transaction():
                await hold_fence_alone(connection, build.layout.live)
                await build.reach(await build.live.positions())
                await _check_epoch(connection, build)
                await swap(connection, build.layout, build.built_schema)
            return
        except Unavailable as error:
            if attempt == SWAP_ATTEMPTS_MAX:
                raise Unavailable(
                    f"changes of {build.layout.schema} under way never let the built rows in",
                    reason="SWAP_REFUSED",
                    subject=build.layout.schema,
                ) from error


async def _check_epoch(connection: Connection, build: _Build) -> None:
    """Raise FailedPrecondition when the live rows were made anew for a restored log."""
    live, built = [
        await connection.fetchval(f"SELECT log_epoch FROM {schema}.layout")
        for schema in (build.layout.live, build.built_schema)
    ]
    if live != built:
        raise FailedPrecondition(
            f"the log was restored while {build.layout.schema} was rebuilt",
            reason="LOG_EPOCH",
            subject=build.layout.schema,
        )
