"""Decision replay over the logs of scripted worlds: equal where nothing changed, found where it
did."""

from dataclasses import replace

import pytest

from fastvideo.deployment.scheduling_policy import policy_document
from fastvideo.errors import FailedPrecondition, NotFound
from fastvideo.replay.decisions import DecisionSource, replay_decisions
from fastvideo.replay.types import ReplayKind, ReplayReport, ReplayRequest
from fastvideo.scheduling.events import DispatchBatch
from fastvideo.scheduling.policy import SchedulingPolicy
from tests.unit.replay.shard_log import SHARD, TRACEPARENT, ShardLog, elected
from tests.unit.scheduling.fleet import Fleet
from tests.unit.scheduling.test_reattach import POLICY, busy, happen
from tests.unit.scheduling.world import START, Catalog, World


async def replayed(log: ShardLog, subject: str = "", **cards: str) -> ReplayReport:
    source = DecisionSource(log=log.store, shard=SHARD, models=Catalog(), cards=cards)
    request = ReplayRequest(kind=ReplayKind.DECISION, subject_id=subject)
    return await replay_decisions(source, request, lambda _: None)


async def log_of(world: World, *, policy: SchedulingPolicy | str | None = None) -> ShardLog:
    log = ShardLog()
    await log.take(elected(policy=policy), START, ())
    await log.write(world)
    return log


def two_workers(policy: SchedulingPolicy | None = None) -> World:
    world = World(policy=policy)
    world.attach("w1")
    world.attach("w2")
    for number in range(6):
        world.submit(f"r{number}", steps=1 + number)
        world.step()
    world.cancel("r3")
    world.lose("w2")
    world.run()
    return world


async def test_the_same_inputs_give_the_same_decisions() -> None:
    world = two_workers()
    report = await replayed(await log_of(world))
    assert report.equal, report.first_divergence
    assert report.promise.kind == "bits"
    assert report.compared == 1 + len(world.history)
    assert "agree" in report.headline


async def test_a_log_of_a_policy_that_is_refused_today_is_replayed() -> None:
    text = policy_document(SchedulingPolicy())
    text = text.replace('"worker_budget":{}', '"worker_budget":{"gpu_bytes":1}')
    assert "gpu_bytes" in text
    report = await replayed(await log_of(two_workers(), policy=text))
    assert report.equal, report.first_divergence


async def test_of_one_request_its_own_decisions_are_compared() -> None:
    report = await replayed(await log_of(two_workers()), "r2")
    assert report.equal, report.first_divergence
    assert 10 < report.compared < 40
    assert report.original_traceparent == TRACEPARENT


async def test_nobody_s_decisions_are_not_found() -> None:
    with pytest.raises(NotFound):
        await replayed(await log_of(two_workers()), "r99")


async def test_a_shard_that_decided_nothing_says_so() -> None:
    with pytest.raises(FailedPrecondition):
        await replayed(ShardLog())


@pytest.mark.parametrize("seed", range(12))
async def test_leaders_that_die_with_what_they_had_not_written_decide_the_same(seed: int) -> None:
    fleet: Fleet = busy(seed, workers=3)
    for term in range(3):
        happen(fleet, 60, cancels=True)
        fleet.fail_over(max(3 if term == 0 else 0, len(fleet.history) - seed))
        fleet.come_back()
    fleet.run()
    log = ShardLog()
    await log.write_fleet(fleet, POLICY)
    report = await replayed(log)
    assert report.equal, report.first_divergence


async def test_another_policy_than_the_logged_one_is_named_where_it_first_shows() -> None:
    world = two_workers(SchedulingPolicy(batch_units_max=1))
    report = await replayed(await log_of(world, policy=SchedulingPolicy()))
    assert not report.equal
    assert report.first_divergence is not None
    assert "DispatchBatch" in report.first_divergence.expected
    assert "decisions[" in report.first_divergence.detail


async def test_one_planted_decision_is_the_only_one_that_differs() -> None:
    world = two_workers()
    log = ShardLog()
    await log.take(elected(), START, ())
    planted = 0
    for number, (event, now, decisions) in enumerate(world.history, start=2):
        if not planted and number > 20 and any(isinstance(d, DispatchBatch) for d in decisions):
            planted = number
            decisions = tuple(
                replace(d, predicted_seconds=d.predicted_seconds + 1)
                if isinstance(d, DispatchBatch)
                else d
                for d in decisions
            )
        await log.take(event, now, decisions)
    report = await replayed(log)
    assert planted
    assert report.first_divergence is not None
    assert report.first_divergence.subject == f"decision {planted}"
    assert "predicted_seconds" in report.first_divergence.detail
    assert report.first_divergence.event_id


async def test_a_decision_that_makes_no_sense_in_the_log_is_found_and_passed() -> None:
    world = two_workers()
    log = ShardLog()
    await log.take(elected(), START, ())
    planted = False
    for event, now, decisions in world.history:
        if not planted and any(isinstance(d, DispatchBatch) for d in decisions):
            planted = True
            decisions = tuple(
                replace(d, unit_ids=tuple(f"{name}?" for name in d.unit_ids))
                if isinstance(d, DispatchBatch)
                else d
                for d in decisions
            )
        await log.take(event, now, decisions)
    report = await replayed(log)
    assert report.differing == 1


async def test_nothing_is_promised_of_another_card() -> None:
    world = World()
    world.attach("w1", card="then")
    world.submit("r1", card="then")
    world.run()
    report = await replayed(await log_of(world), tiny="now")
    assert report.promise.kind == "none"
    assert "card tiny" in report.promise.reason
    assert report.promise.differences == {"card tiny": "then -> now"}
