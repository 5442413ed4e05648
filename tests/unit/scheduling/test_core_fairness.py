"""Who gets the device: shares of tenants and of kinds, priority, targets, and a bounded wait."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fastvideo.scheduling.events import CompleteRequest, DispatchBatch
from fastvideo.scheduling.policy import SchedulingPolicy, SloClass
from fastvideo.scheduling.work import UnitKind
from tests.unit.scheduling.timed import ONLY, Timed, steps_of, tenant_of

WEIGHTS = {"a": 1.0, "b": 2.0, "c": 4.0}


def shares_of(world):
    spent = world.device_seconds(tenant_of)
    return {name: spent.get(name, 0.0) / sum(spent.values()) for name in WEIGHTS}


def assert_weighted(shares):
    whole = sum(WEIGHTS.values())
    for name, weight in WEIGHTS.items():
        assert shares[name] == pytest.approx(weight / whole, rel=0.1), shares


# -- tenants -----------------------------------------------------------------------------


@pytest.mark.parametrize("max_batch", [1, 4])
def test_running_requests_of_tenants_share_a_worker_by_weight(max_batch):
    world = Timed(
        policy=SchedulingPolicy(tenant_weights=WEIGHTS),
        catalog=ONLY,
        plan=steps_of(max_batch=max_batch),
    )
    world.attach()
    for tenant in WEIGHTS:
        for n in range(8):
            world.submit(f"{tenant}-{n}", steps=1_000, tenant=tenant)
    world.advance(8.0)
    assert_weighted(shares_of(world))


def test_waiting_requests_of_tenants_share_places_by_weight():
    world = Timed(
        policy=SchedulingPolicy(tenant_weights=WEIGHTS, resident_requests_max=2),
        catalog=ONLY,
        plan=steps_of(),
    )
    world.attach("w1")
    world.attach("w2")
    for n in range(200):
        for tenant in WEIGHTS:
            # Whoever asks for more work per request gets no more of the device by it.
            steps = 12 if tenant == "a" else 4
            world.submit(f"{tenant}-{n}", steps=steps, tenant=tenant)
    world.advance(6.0)
    assert_weighted(shares_of(world))


def test_predictions_that_are_wrong_do_not_bend_the_shares():
    # Tenant c's units take three times as long as all are predicted to take.
    def seconds(batch, units):
        return 0.03 if batch.loops[0].request_id.startswith("c") else 0.01

    world = Timed(
        policy=SchedulingPolicy(tenant_weights=WEIGHTS),
        catalog=ONLY,
        plan=steps_of(),
        seconds=seconds,
    )
    world.attach()
    for tenant in WEIGHTS:
        for n in range(4):
            world.submit(f"{tenant}-{n}", steps=1_000, tenant=tenant)
    world.advance(12.0)
    assert_weighted(shares_of(world))


def test_a_tenant_that_was_idle_builds_no_credit():
    world = Timed(catalog=ONLY, plan=steps_of())
    world.attach()
    for n in range(4):
        world.submit(f"busy-{n}", steps=1_000, tenant="busy")
    world.advance(4.0)
    for n in range(4):
        world.submit(f"late-{n}", steps=1_000, tenant="late")
    before = world.device_seconds(tenant_of)
    world.advance(8.0)
    after = world.device_seconds(tenant_of)
    assert after["busy"] - before["busy"] == pytest.approx(2.0, rel=0.1)
    assert after["late"] == pytest.approx(2.0, rel=0.1)


def test_a_tenant_that_cancels_what_waits_pays_nothing_for_it():
    world = Timed(
        policy=SchedulingPolicy(resident_requests_max=1), catalog=ONLY, plan=steps_of(steps=2)
    )
    world.attach()
    world.submit("x-0", tenant="x")
    world.advance(0.5)
    for n in range(1, 40):
        world.submit(f"gone-{n}", tenant="gone")
    for n in range(2, 40):
        world.cancel(f"gone-{n}")
    for n in range(10):
        world.submit(f"other-{n}", tenant="other")
    world.submit("gone-last", tenant="gone")
    world.finish()
    ends = list(world.ended_at)
    assert ends.index("gone-last") < ends.index("other-5")


# -- kinds -------------------------------------------------------------------------------


@pytest.mark.row("SCH-06")
@pytest.mark.parametrize(("tokens", "steps"), [(1.0, 1.0), (1.0, 3.0), (2.0, 1.0)])
def test_tokens_and_steps_share_one_budget_of_seconds_at_the_ratio_that_is_set(tokens, steps):
    def plan(spec, loop, instance):
        kind = UnitKind.AR_TOKEN if spec.request_id.startswith("ar") else UnitKind.DIFFUSION_STEP
        made = steps_of(kind)(spec, loop, instance)
        return [replace(u, cost_phase=kind.value) for u in made]

    def seconds(batch, units):
        return 0.002 if batch.kind is UnitKind.AR_TOKEN else 0.05

    world = Timed(
        policy=SchedulingPolicy(
            kind_shares={UnitKind.AR_TOKEN: tokens, UnitKind.DIFFUSION_STEP: steps},
            worker_budget={"compute_seconds": 0.05},
        ),
        catalog=ONLY,
        plan=plan,
        seconds=seconds,
    )
    world.attach(compute_slots=4)
    for n in range(6):
        world.submit(f"ar-{n}", steps=2_000)
        world.submit(f"video-{n}", steps=200)
    world.advance(6.0)
    spent = world.device_seconds(tenant_of)
    assert spent["ar"] / spent["video"] == pytest.approx(tokens / steps, rel=0.1)


def test_predictions_that_are_wrong_do_not_bend_the_shares_of_kinds():
    # Of tokens, all predicted alike, every third takes twenty times as long as the others.
    def plan(spec, loop, instance):
        kind = UnitKind.AR_TOKEN if spec.request_id.startswith("ar") else UnitKind.DIFFUSION_STEP
        made = steps_of(kind)(spec, loop, instance)
        return [replace(u, cost_phase=kind.value) for u in made]

    def seconds(batch, units):
        if batch.kind is UnitKind.DIFFUSION_STEP:
            return 0.02
        return 0.04 if batch.loops[0].request_id == "ar-0" else 0.002

    shares = {UnitKind.AR_TOKEN: 1.0, UnitKind.DIFFUSION_STEP: 1.0}
    world = Timed(
        policy=SchedulingPolicy(kind_shares=shares), catalog=ONLY, plan=plan, seconds=seconds
    )
    world.attach()
    for n in range(3):
        world.submit(f"ar-{n}", steps=1_000)
        world.submit(f"video-{n}", steps=1_000)
    world.advance(4.0)
    spent = world.device_seconds(tenant_of)
    assert spent["ar"] / spent["video"] == pytest.approx(1.0, rel=0.1)


# -- a bounded wait ----------------------------------------------------------------------


def longest_wait(world):
    """The longest time from a unit's being ready to its start, over all units."""
    ready, longest = {}, 0.0
    for event, now, decisions in world.history:
        plans = [getattr(event, "plan", None)]
        plans += [result.next_plan for result in getattr(event, "results", ())]
        for plan in plans:
            for offered in plan.units if plan is not None else ():
                ready[offered.unit_id] = now
        for decision in decisions:
            if isinstance(decision, DispatchBatch):
                for unit_id in decision.unit_ids:
                    longest = max(longest, (now - ready[unit_id]).total_seconds())
    return longest


@pytest.mark.row("SCH-12")
def test_a_long_video_and_a_stream_of_short_requests_are_both_bounded():
    policy = SchedulingPolicy(starving_wait_seconds_max=0.5, resident_requests_max=16)

    def plan(spec, loop, instance):
        if spec.request_id == "video-0":
            return steps_of(UnitKind.DIFFUSION_STEP, steps=40)(spec, loop, instance)
        made = steps_of(UnitKind.AR_TOKEN, steps=10)(spec, loop, instance)
        return [replace(u, cost_phase="tokens") for u in made]

    def seconds(batch, units):
        return 0.005 if batch.kind is UnitKind.AR_TOKEN else 0.1

    world = Timed(policy=policy, catalog=ONLY, plan=plan, seconds=seconds)
    world.attach()
    # The video is of the lowest priority, and tokens alone would fill the worker.
    world.submit("video-0", priority=-5)
    for n in range(400):
        world.at(0.02 + n * 0.04, partial(world.submit, f"short-{n}", priority=5))
    world.finish()
    assert world.core.live_requests == 0
    bound = 0.5 + 2 * (16 + 1) * 0.1
    assert longest_wait(world) <= bound
    # And in truth it waited little more than the half second before each of its 40 steps.
    assert world.ended_at["video-0"] < 40 * (0.5 + 0.1 + 2 * 0.1)
    short = [at for name, at in world.ended_at.items() if name.startswith("short")]
    assert len(short) == 400


def test_starved_units_take_every_second_batch_and_no_more():
    world = Timed(
        policy=SchedulingPolicy(starving_wait_seconds_max=0.2), catalog=ONLY, plan=steps_of()
    )
    world.attach()
    for n in range(15):
        world.submit(f"low-{n}", steps=1_000, priority=0)
    for n in range(15):
        world.submit(f"high-{n}", steps=1_000, priority=9)
    world.advance(1.0)
    before = world.device_seconds(tenant_of)
    world.advance(5.0)
    after = world.device_seconds(tenant_of)
    # Everything starves, and priority still rules half of the device.
    assert after["high"] - before["high"] >= 0.5 * 4.0 * 0.98


# -- priority, deadlines, classes --------------------------------------------------------


def percentile_95(world, group, submitted):
    waits = sorted(
        world.ended_at[name] - at for name, at in submitted.items() if name.startswith(group)
    )
    return waits[int(0.95 * (len(waits) - 1))]


def under_load(policy, *, priority_of=lambda name: 0, tenant_of=lambda name: ""):
    """Short requests among bursts of long ones, at 95 % of what a worker can."""
    world = Timed(policy=policy, catalog=ONLY, plan=steps_of())
    world.attach()
    arrivals = [(f"chat-{n}", 0.35 * n + 0.1, 4) for n in range(28)]
    arrivals += [(f"bulk-{n}-{k}", 1.4 * n, 40) for n in range(7) for k in range(3)]
    submitted = {}
    for name, at_s, steps in arrivals:
        submitted[name] = at_s
        world.at(
            at_s,
            partial(
                world.submit, name, steps=steps, priority=priority_of(name), tenant=tenant_of(name)
            ),
        )
    world.finish()
    assert all(isinstance(world.terminal(name), CompleteRequest) for name in submitted)
    return percentile_95(world, "chat", submitted), percentile_95(world, "bulk", submitted)


def chat_first(name):
    return 1 if name.startswith("chat") else 0


@pytest.mark.row("SCH-13")
def test_the_knobs_of_a_deployment_change_the_tail_as_they_say():
    few: dict[str, Any] = {"resident_requests_max": 2}
    chat, bulk = under_load(SchedulingPolicy(**few))
    # Fairness between tenants, and priority, help the short ones at the cost of nobody.
    fair, fair_bulk = under_load(SchedulingPolicy(**few), tenant_of=tenant_of)
    assert fair < 0.95 * chat
    assert fair_bulk <= bulk
    first, _ = under_load(SchedulingPolicy(**few), priority_of=chat_first)
    assert first < 0.95 * chat
    # A place of their own helps most, and costs the long ones next to nothing.
    classes = {"chat": SloClass(priority_min=1, reserved_places=1)}
    kept, kept_bulk = under_load(
        SchedulingPolicy(**few, slo_classes=classes), priority_of=chat_first
    )
    assert kept < 0.15 * chat
    assert kept_bulk < 1.05 * bulk
    # One target for all orders by arrival: better for the long ones, worse for the short ones.
    target = {"all": SloClass(priority_min=0, target_seconds=1.0)}
    late, late_bulk = under_load(SchedulingPolicy(**few, slo_classes=target))
    assert late > 1.2 * chat
    assert late_bulk < 0.95 * bulk
    # Many places let short requests in at once, unless running ones go first for long.
    wide, _ = under_load(SchedulingPolicy(resident_requests_max=32))
    assert wide < 0.3 * chat
    shut, shut_bulk = under_load(
        SchedulingPolicy(resident_requests_max=32, fresh_wait_seconds_max=1.0)
    )
    assert shut > 4 * wide
    assert shut_bulk < 0.95 * bulk


@pytest.mark.row("REQ-17")
def test_priority_and_deadline_change_the_order_of_completion_under_load():
    world = Timed(
        policy=SchedulingPolicy(resident_requests_max=2), catalog=ONLY, plan=steps_of(steps=10)
    )
    world.attach()
    for n in range(10):
        world.submit(f"plain-{n}")
    world.submit("later", deadline_s=500)
    world.submit("soon", deadline_s=100)
    world.submit("urgent", priority=3)
    world.finish()
    order = list(world.ended_at)
    assert order[2:5] == ["urgent", "soon", "later"]
    assert set(order[:2]) == {"plain-0", "plain-1"}


def test_priority_rules_between_running_requests_too():
    world = Timed(catalog=ONLY, plan=steps_of(steps=20))
    world.attach()
    for n in range(6):
        world.submit(f"plain-{n}")
    world.advance(0.3)
    world.submit("urgent", priority=3)
    world.finish()
    assert next(iter(world.ended_at)) == "urgent"
