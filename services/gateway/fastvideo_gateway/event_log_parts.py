"""What the gateway reads the event log with, and keeps so that it need not read it all."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from fastvideo.errors import ResourceExhausted
from fastvideo.events.projections.postgres import PostgresProjection
from fastvideo.events.projections.projector import AT_EASE_S, Projector
from fastvideo.events.reading.index_postgres import PostgresEventIndex
from fastvideo.events.reading.inspection import PostgresInspection
from fastvideo.events.reading.reader import LogReader, checked_positions
from fastvideo.events.reading.stats import LogStats, read_stats
from fastvideo.events.reading.tailing import LogFollower
from fastvideo.events.reading.verifying import ArchiveChecks, Verifier, VerifyProgress
from fastvideo.events.store import EventLog
from fastvideo.events.subscription import PollLimits
from fastvideo.events.tailed import POLLING as BESIDE_TAIL
from fastvideo.events.tailed import TailedLog
from fastvideo_gateway.behaviors import BehaviorLister
from fastvideo_gateway.behaviors_postgres import PostgresBehaviors
from fastvideo_gateway.following import keep_following

# The index follows at ease: what it has not taken in yet is read by those who ask.
_AT_EASE: Final = PollLimits(interval_s_min=1.0, interval_s_max=5.0, events_per_read_max=2_000)
VERIFIERS_MAX: Final = 1


@dataclass(frozen=True, slots=True)
class EventLogParts:
    """Reads, follows, measures and verifies the log."""

    log: EventLog
    # The same for who follows it as it grows.
    tail: TailedLog
    reader: LogReader
    follower: LogFollower
    index: PostgresEventIndex
    inspection: PostgresInspection
    verifier: Verifier
    behaviors: BehaviorLister
    behavior_projector: Projector
    # Those whose lag is told.
    projections: tuple[PostgresProjection, ...]
    _verifying: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(VERIFIERS_MAX))

    async def run(self) -> None:
        """Keep the index and the records of behaviour, for ever; ends by cancellation."""
        async with asyncio.TaskGroup() as group:
            for name, projector in (
                ("event-index", Projector(self.tail, self.index, None, _AT_EASE)),
                ("behaviors", self.behavior_projector),
            ):
                group.create_task(keep_following(name, projector.run), name=name)

    async def stats(self) -> LogStats:
        """How much is in the log."""
        named = {type(kept).layout.schema: kept for kept in self.projections}
        return await read_stats(self.log, self.index, self.inspection, named)

    async def verify(self, after: Mapping[int, int]) -> AsyncGenerator[VerifyProgress, None]:
        """Check the log, one caller at a time.

        Raises ResourceExhausted while it is checked for another, InvalidField for a position
        that the log does not have.
        """
        if self._verifying.locked():
            raise ResourceExhausted("the log is being verified already", subject="verify")
        async with self._verifying:
            checked_positions(after, await self.log.heads())
            async with aclosing(self.verifier.verify(after)) as steps:
                async for progress in steps:
                    yield progress


@asynccontextmanager
async def open_event_log(
    dsn: str,
    log: EventLog,
    tail: TailedLog,
    *,
    projections: Sequence[PostgresProjection] = (),
    archives: Sequence[ArchiveChecks] = (),
) -> AsyncIterator[EventLogParts]:
    """The parts over a log in Postgres; `run` must run beside them."""
    async with AsyncExitStack() as stack:
        index = await PostgresEventIndex.open(dsn, await log.log_epoch())
        stack.push_async_callback(index.close)
        inspection = await PostgresInspection.open(dsn)
        stack.push_async_callback(inspection.close)
        behaviors = await PostgresBehaviors.open(dsn, await log.log_epoch())
        stack.push_async_callback(behaviors.close)
        behavior_projector = Projector(tail, behaviors, tail, BESIDE_TAIL, gather_s=AT_EASE_S)
        reader = LogReader(log, index)
        yield EventLogParts(
            log=log,
            tail=tail,
            reader=reader,
            follower=LogFollower(reader, tail, BESIDE_TAIL, tail=tail),
            index=index,
            inspection=inspection,
            verifier=Verifier(inspection, archives),
            behaviors=BehaviorLister(behaviors, behavior_projector),
            behavior_projector=behavior_projector,
            projections=(*projections, index, behaviors),
        )
