"""BatchScheduler alone: who shares a forward, who goes first, who waits how long."""

from datetime import timedelta
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastvideo.scheduling.admission import COMPUTE, MEMORY, Ledger
from fastvideo.scheduling.batch_scheduler import BatchScheduler
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.ready import Rank, ReadyUnits
from fastvideo.scheduling.work import LoopRef, ResourceRequest, UnitKind
from tests.unit.scheduling.world import START, unit

pytestmark = pytest.mark.row("SCH-17")

POLICY = SchedulingPolicy(
    fresh_wait_seconds_max=0.1, starving_wait_seconds_max=1.0, deferrals_max=3
)


def rank(priority=0, deadline=inf):
    return Rank(1, -priority, deadline, 0)


def offer(ready, name, *, running=True, priority=0, deadline=inf, at_s=0.0, memory=0, **fields):
    resources = ResourceRequest(compute=True, memory_bytes={"pool": memory})
    ref = LoopRef(request_id=name, node_id="n", attempt=1)
    ready.add(
        unit(ref, resources=resources, **fields),
        rank(priority, deadline),
        running=running,
        now=START + timedelta(seconds=at_s),
    )


def form(ready, *, at_s=0.0, memory=1_000, taken=0):
    budget = {COMPUTE: 2, MEMORY + "pool": memory}
    ledger = Ledger(budget, {COMPUTE: 1, MEMORY + "pool": taken} if taken else {})
    batch = BatchScheduler(POLICY).form(ready, ledger, START + timedelta(seconds=at_s))
    deferred = [u.loop.request_id for u, _ in batch.deferred]
    return [u.loop.request_id for u in batch.units], deferred


def check_order(expected, *offers):
    """Units that may not share a forward come out in this order."""
    ready = ReadyUnits()
    for name, fields in offers:
        offer(ready, name, max_batch=1, **fields)
    order = []
    while ready.units:
        (name,), _ = form(ready, at_s=0.05)
        order.append(name)
        ready.remove(f"{name}/n/1/0")
    assert order == expected


def test_running_requests_go_first():
    check_order(["b", "a"], ("a", {"running": False}), ("b", {}))


def test_then_priority_then_deadline_then_waiting_time():
    check_order(
        ["high", "soon", "later", "a", "b", "low"],
        ("a", {}),
        ("low", {"priority": -1}),
        ("later", {"deadline": 200.0}),
        ("b", {}),
        ("soon", {"deadline": 100.0}),
        ("high", {"priority": 1}),
    )


def test_a_new_request_that_waited_its_time_counts_as_running():
    ready = ReadyUnits()
    offer(ready, "new", running=False, max_batch=1)
    offer(ready, "old", max_batch=1, at_s=0.05)
    assert form(ready, at_s=0.09)[0] == ["old"]
    assert form(ready, at_s=0.1)[0] == ["new"]


def test_what_has_starved_goes_first_whatever_its_priority():
    ready = ReadyUnits()
    offer(ready, "low", priority=-5, max_batch=1)
    offer(ready, "high", priority=5, max_batch=1, at_s=0.5)
    assert form(ready, at_s=0.9)[0] == ["high"]
    assert form(ready, at_s=1.0)[0] == ["low"]


def test_units_with_equal_keys_share_a_batch_up_to_its_bound():
    ready = ReadyUnits()
    for n in range(5):
        offer(ready, f"r{n}", max_batch=3)
    assert form(ready)[0] == ["r0", "r1", "r2"]


def test_new_requests_join_the_batch_of_running_ones():
    ready = ReadyUnits()
    offer(ready, "new", running=False)
    offer(ready, "old")
    assert form(ready)[0] == ["old", "new"]


keys = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([UnitKind.DIFFUSION_STEP, UnitKind.VAE_TILE]),
        "batch_key": st.sampled_from(["48x48", "64x64"]),
        "instance": st.sampled_from(["i1", "i2"]),
        "max_batch": st.integers(1, 4),
        "running": st.booleans(),
        "priority": st.integers(-1, 1),
    }
)


@pytest.mark.row("SCH-10")
@given(st.lists(keys, min_size=1, max_size=12))
def test_a_batch_never_mixes_what_must_not_mix(offers):
    ready = ReadyUnits()
    for n, fields in enumerate(offers):
        offer(ready, f"r{n}", **fields)
    seen = []
    while ready.units:
        names, deferred = form(ready)
        batch = [ready.units[f"{name}/n/1/0"].unit for name in names]
        assert not deferred
        assert len({(u.kind, u.batch_key, u.model_instance_id) for u in batch}) == 1
        assert len(batch) <= min(u.max_batch for u in batch)
        seen.extend(names)
        for unit_ in batch:
            ready.remove(unit_.unit_id)
    assert sorted(seen) == sorted(f"r{n}" for n in range(len(offers)))


def test_a_batch_takes_no_more_than_what_is_free():
    ready = ReadyUnits()
    for n in range(4):
        offer(ready, f"r{n}", memory=10)
    assert form(ready, memory=25) == (["r0", "r1"], [])


def test_what_does_not_fit_is_passed_over_and_named():
    ready = ReadyUnits()
    offer(ready, "big", memory=50, batch_key="big")
    offer(ready, "small", memory=10, batch_key="small")
    assert form(ready, memory=60, taken=20) == (["small"], ["big"])


def test_nobody_goes_past_a_starved_unit_that_does_not_fit():
    ready = ReadyUnits()
    offer(ready, "big", memory=50, batch_key="big")
    offer(ready, "small", memory=10, batch_key="small")
    assert form(ready, at_s=1.0, memory=60, taken=20) == ([], ["big"])


def test_few_are_passed_over_at_a_time():
    ready = ReadyUnits()
    for n in range(6):
        offer(ready, f"r{n}", memory=50, batch_key=str(n))
    assert form(ready, memory=60, taken=20) == ([], ["r0", "r1", "r2"])


def test_removing_twice_and_promoting_what_is_gone_do_nothing():
    ready = ReadyUnits()
    offer(ready, "a", running=False)
    ready.remove("a/n/1/0")
    ready.remove("a/n/1/0")
    ready.promote_unit("a/n/1/0")
    assert not ready.units
    assert not ready.groups
    assert not ready.fresh
