"""What the scheduler knew at a place of the log, line by line."""

import json
from typing import Any

import pytest

from fastvideo.errors import InvalidField
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.store import partition_of
from fastvideo.replay.scheduler_state import SchedulerSource
from fastvideo.replay.states import StateSource, replay_states
from fastvideo.replay.types import Comparison, ReplayKind, ReplayReport, ReplayRequest
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.stream import shard_stream
from tests.unit.replay.shard_log import SHARD, ShardLog, elected
from tests.unit.scheduling.world import START, Catalog, World

POLICY = SchedulingPolicy(resident_requests_max=1)


async def known_at(log: ShardLog, **until: Any) -> tuple[dict[str, Any], ReplayReport]:
    """By subject, what the scheduler knew; and the report."""
    told: list[Comparison] = []

    def tell(one: Any) -> None:
        if isinstance(one, Comparison):
            told.append(one)

    served: Any = None
    scheduler = SchedulerSource(SHARD, Catalog())
    source = StateSource(log=log.store, served=served, scheduler=scheduler)
    request = ReplayRequest(kind=ReplayKind.STATE, subject_id="scheduler", **until)
    report = await replay_states(source, request, tell)
    return {one.subject: json.loads(one.detail) for one in told}, report


async def written() -> tuple[ShardLog, int]:
    """A worker with two requests of which one waits; and the offset at which it was so."""
    world = World(policy=POLICY)
    world.attach("w1")
    world.submit("r1", steps=4)
    world.submit("r2", steps=4)
    log = ShardLog()
    await log.take(elected(policy=POLICY), START, ())
    await log.write(world)
    busy = await log.store.head(0)
    since = len(world.history)
    world.run()
    await log.write(world, since)
    return log, busy


async def test_an_offset_shows_the_workers_and_requests_that_were_known_there() -> None:
    log, busy = await written()
    known, report = await known_at(log, until={0: busy})
    assert set(known) == {"worker w1", "request r1", "request r2"}
    assert known["request r1"]["worker_id"] == "w1"
    assert known["request r1"]["loops"]["encode"] in ("preparing", "active")
    assert "worker_id" not in known["request r2"]
    assert known["request r2"]["queued_position"] > 0
    assert known["worker w1"]["loops"] == 1
    assert report.equal


async def test_at_the_end_only_the_worker_is_left() -> None:
    log, _ = await written()
    known, report = await known_at(log)
    assert set(known) == {"worker w1"}
    assert report.digests["scheduler"]


async def test_offsets_of_another_partition_are_refused() -> None:
    log = ShardLog()
    log.store = MemoryEventStore(partition_count=2)
    await log.take(elected(), START, ())
    own = partition_of(shard_stream(SHARD), 2)
    with pytest.raises(InvalidField, match=f"partition {own}"):
        await known_at(log, until={1 - own: 0})
    known, _ = await known_at(log, until={own: 2})
    assert known == {}
