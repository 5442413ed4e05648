"""The log that a shard would have written of a world of scripted workers."""

from collections.abc import Sequence
from datetime import datetime

from fastvideo.clock import ManualClock
from fastvideo.deployment.scheduling_policy import policy_document
from fastvideo.events.catalog import new_event
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import AppendCommand, NewEvent, StreamAppend
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.requests.events import RequestAccepted, RequestCancelRequested
from fastvideo.requests.state import stream_of
from fastvideo.scheduling.effects import request_event
from fastvideo.scheduling.events import Decision, LeaderElected, SchedulerDecided
from fastvideo.scheduling.inputs import CancelRequested, RequestSubmitted, SchedulerInput, Tick
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.stream import shard_stream
from fastvideo.scheduling.traces import TraceNote
from tests.unit.scheduling.fleet import Fleet
from tests.unit.scheduling.world import START, World

SHARD = "0"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def elected(
    epoch: int = 1, *, anew: bool = True, policy: SchedulingPolicy | str | None = None
) -> LeaderElected:
    """A scheduler takes the lease, and says under which rules it decides."""
    return LeaderElected(
        scheduler_id=f"scheduler-{epoch}",
        epoch=epoch,
        anew=anew,
        policy=policy if isinstance(policy, str) else policy_document(policy or SchedulingPolicy()),
    )


class ShardLog:
    """Appends what a world's leader would."""

    def __init__(self) -> None:
        self._clock = ManualClock(START)
        self.store = MemoryEventStore(clock=self._clock)
        self._count = 0

    def _event(self, payload: EventPayload, at: datetime) -> NewEvent:
        self._count += 1
        about = EventMetadata(occurred_at=at, traceparent=TRACEPARENT)
        return new_event(f"evt_{self._count:06}", payload, about)

    async def _append(self, stream_id: str, *events: NewEvent) -> None:
        streams = (StreamAppend(stream_id, events),)
        await self.store.append(AppendCommand(streams=streams))

    async def take(
        self,
        event: SchedulerInput,
        now: datetime,
        decisions: Sequence[Decision],
        notes: Sequence[TraceNote] = (),
    ) -> None:
        """Write an input, what was noted with it, and what was decided of it."""
        self._clock.set(now)
        shard: list[NewEvent] = []
        input_id = ""
        if isinstance(event, RequestSubmitted):
            accepted = self._event(RequestAccepted(spec=event.spec), now)
            await self._append(stream_of(event.spec.request_id), accepted)
            input_id = accepted.event_id
        elif isinstance(event, CancelRequested):
            asked = self._event(RequestCancelRequested(scope=event.scope, reason=event.reason), now)
            await self._append(stream_of(event.scope.target_id.partition("/")[0]), asked)
            input_id = asked.event_id
        elif not isinstance(event, Tick):
            shard.append(self._event(event, now))
            input_id = shard[0].event_id
            shard += [self._event(note, now) for note in notes]
        elif not decisions:
            return
        decided = SchedulerDecided(input_event_id=input_id, at=now, decisions=tuple(decisions))
        await self._append(shard_stream(SHARD), *shard, self._event(decided, now))
        for decision in decisions:
            seen = request_event(decision)
            if seen is not None:
                await self._append(stream_of(seen[0]), self._event(seen[1], now))

    async def write(self, world: World, since: int = 0) -> None:
        """Write a world's history."""
        for event, now, decisions in world.history[since:]:
            await self.take(event, now, decisions)

    async def write_fleet(self, fleet: Fleet, policy: SchedulingPolicy) -> None:
        """Write the terms of a fleet's leaders, the first of which began anew."""
        await self.take(elected(policy=policy), START, ())
        for event, now, decisions in [*fleet.log, *fleet.history]:
            if isinstance(event, LeaderElected):
                event = elected(event.epoch, anew=False, policy=policy)
            assert isinstance(now, datetime)
            await self.take(event, now, decisions)
