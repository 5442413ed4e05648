"""A snapshot of the core: exact, readable only by those who may read it, small."""

import json
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastvideo.errors import ContractViolation, FailedPrecondition
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.snapshot import SchedulerSnapshot, take
from tests.unit.scheduling.test_core_properties import POLICY, Chaos
from tests.unit.scheduling.world import Catalog, World

seeds = st.integers(min_value=0, max_value=2**32)
worlds = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@worlds
@given(seeds, st.integers(min_value=0, max_value=120))
def test_a_restored_core_decides_as_the_original_does(seed, times):
    world = Chaos(seed)
    world.happen(times)
    snapshot = SchedulerSnapshot.decode(world.core.snapshot().encode())
    restored = SchedulerCore.restore(Catalog(), POLICY, snapshot)
    assert restored.digest() == world.core.digest()
    before = len(world.history)
    world.happen(80)
    world.come_to_rest()
    for event, now, decisions in world.history[before:]:
        assert restored.decide(event, now) == decisions
    assert restored.digest() == world.core.digest()


@worlds
@given(seeds)
def test_a_follower_has_the_digest_of_whom_it_follows(seed):
    world = Chaos(seed)
    world.happen(120)
    follower = SchedulerCore(Catalog(), policy=POLICY, epoch=1)
    for event, now, decisions in world.history:
        follower.replay(event, decisions, now)
    assert follower.digest() == world.core.digest()


def test_a_snapshot_does_not_change_with_its_core():
    world = busy()
    snapshot = world.core.snapshot()
    digest, data = snapshot.digest(), snapshot.encode()
    world.run()
    assert world.core.digest() != digest
    assert (snapshot.digest(), snapshot.encode()) == (digest, data)


def test_a_snapshot_can_be_put_back_more_than_once():
    world = busy()
    snapshot = world.core.snapshot()
    first = SchedulerCore.restore(Catalog(), None, snapshot)
    before = len(world.history)
    world.run()
    for event, now, decisions in world.history[before:]:
        assert first.decide(event, now) == decisions
    assert SchedulerCore.restore(Catalog(), None, snapshot).digest() == snapshot.digest()


def test_the_epoch_may_be_another_one():
    world = busy()
    restored = SchedulerCore.restore(Catalog(), None, world.core.snapshot(), epoch=7)
    assert restored.epoch == 7
    assert SchedulerCore.restore(Catalog(), None, world.core.snapshot()).epoch == 1


@pytest.mark.parametrize("data", [b"", b"nonsense", zlib.compress(b"{}")])
def test_damaged_bytes_are_refused(data):
    with pytest.raises(FailedPrecondition) as caught:
        SchedulerSnapshot.decode(data)
    assert caught.value.reason == "SNAPSHOT_UNREADABLE"


def test_a_snapshot_of_a_program_whose_state_looked_otherwise_is_refused():
    document = json.loads(zlib.decompress(busy().core.snapshot().encode()))
    module, name, fields = document["classes"][0]
    for known in ([module, name, [*fields, "more"]], [module, "Gone", fields], ["os", "x", []]):
        changed = {**document, "classes": [known, *document["classes"][1:]]}
        with pytest.raises(FailedPrecondition):
            SchedulerSnapshot.decode(zlib.compress(json.dumps(changed).encode()))


def test_what_is_no_data_is_named():
    class Holder:
        def __init__(self):
            self.function = print

    with pytest.raises(ContractViolation, match=r"Holder\.function"):
        take(Holder())


def busy() -> World:
    world = World()
    world.attach()
    for n in range(4):
        world.submit(f"r{n}", steps=5, session="s", deadline_s=100.0)
    for _ in range(12):
        world.step()
    return world
