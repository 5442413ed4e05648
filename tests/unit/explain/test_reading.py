"""What is read of the shard's stream for an explanation, and what is left out."""

import pytest

from fastvideo.explain import reading
from fastvideo.explain.reading import read_history
from fastvideo.requests.reading import read_request
from tests.unit.replay.shard_log import SHARD, ShardLog
from tests.unit.scheduling.world import World


async def test_what_is_beyond_the_bound_is_left_out_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.attach("w1")
    world.submit("r1", steps=3)
    world.run()
    log = ShardLog()
    await log.write(world)
    state = await read_request(log.store, "r1")
    assert state is not None
    tenant = state.spec.tenant_id
    whole = await read_history(log.store, "r1", tenant, SHARD)
    assert whole is not None
    assert whole.left_out == ""
    assert whole.history.course.ended_at is not None
    monkeypatch.setattr(reading, "EVENTS_MAX", 3)
    some = await read_history(log.store, "r1", tenant, SHARD)
    assert some is not None
    assert some.events_read == 3
    assert some.left_out == "what came after the first 3 events of the scheduler"
