"""BatchScheduler alone: who shares a forward, who goes first, who waits how long."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastvideo.model.canonical import canonical_digest
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


# -- every field of a key ----------------------------------------------------------------

FIELDS = {
    "instance": ("i1", "i2"),
    "loop_id": ("denoise", "refine"),
    "kind": (UnitKind.DIFFUSION_STEP, UnitKind.VAE_TILE),
    "shape": ("48x48", "64x64"),
    "precision": ("float32", "bfloat16"),
    "branches": (("text",), ("text", "none")),
    "adapters": ((), (("style", "v1"),)),
    "capture_key": ("", "graph-48x48"),
    "parallel_plan": ("", "tp2"),
    "text_length": (32, 64),
    "sampler": ("euler", "unipc"),
}
"""What loops put into a unit's key, or the unit says beside it."""

works = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in FIELDS.items()})


def work_unit(name, work):
    """A unit as a loop of that work declares it: the key is a digest over what must agree."""
    key = {field: value for field, value in work.items() if field not in ("instance", "kind")}
    made = unit(
        LoopRef(request_id=name, node_id="n", attempt=1),
        kind=work["kind"],
        batch_key=canonical_digest(key),
        instance=work["instance"],
        max_batch=16,
    )
    return replace(made, loop_id=work["loop_id"])


@pytest.mark.row("TST-05")
@settings(max_examples=60, deadline=None)
@given(st.lists(works, min_size=1, max_size=16), st.data())
def test_units_share_a_batch_exactly_when_every_field_of_their_keys_agrees(some, data):
    # Few kinds of work, many units of each, so that there is much to share.
    chosen = data.draw(st.lists(st.sampled_from(some), min_size=2, max_size=24))
    ready, work_of = ReadyUnits(), {}
    for n, work in enumerate(chosen):
        work_of[f"r{n}"] = work
        ready.add(work_unit(f"r{n}", work), rank(), running=True, now=START)
    batches = []
    while ready.units:
        names, _ = form(ready)
        batches.append(names)
        for name in names:
            ready.remove(f"{name}/n/1/0")
    for names in batches:
        first, *others = (work_of[name] for name in names)
        assert all(work == first for work in others), "a batch mixes what must not mix"
    # And nothing that could share was kept apart.
    by_work = Counter(str(sorted(work.items(), key=str)) for work in work_of.values())
    assert len(batches) == sum(-(-count // 16) for count in by_work.values())


@pytest.mark.parametrize("field", FIELDS)
def test_units_that_differ_in_one_field_alone_never_share(field):
    work = {name: values[0] for name, values in FIELDS.items()}
    other = work | {field: FIELDS[field][1]}
    ready = ReadyUnits()
    ready.add(work_unit("a", work), rank(), running=True, now=START)
    ready.add(work_unit("b", other), rank(), running=True, now=START)
    assert form(ready)[0] == ["a"]
