"""What if: a recorded world under another policy, figures from the log and from simulations."""

from typing import Any

import pytest

from fastvideo.deployment.catalog import Catalog
from fastvideo.deployment.scheduling_policy import policy_document
from fastvideo.errors import FailedPrecondition, InvalidField
from fastvideo.model.documents import parse
from fastvideo.model.specs import CostPrior
from fastvideo.replay.costs import Line
from fastvideo.replay.types import PolicyFigures, ReplayKind, ReplayReport, ReplayRequest
from fastvideo.replay.what_if import WhatIfSource, replay_what_if
from fastvideo.scheduling.events import LeaderElected
from fastvideo.scheduling.inputs import RequestSubmitted
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.simulation.leader import Entry
from fastvideo.simulation.reading import scenario
from fastvideo.simulation.trace import Trace
from fastvideo.simulation.world import World
from tests.unit.replay.shard_log import SHARD, ShardLog, elected

MODEL = "moving-digits"
PAIRS = SchedulingPolicy(batch_units_max=2)
TOGETHER = SchedulingPolicy(batch_units_max=8)
WORLD: dict[str, Any] = {
    "duration_s": 4.0,
    "noise": 0.0,
    # A forward costs the same whatever is in it, so that sharing pays.
    "models": {MODEL: {"card": MODEL, "loops": {"denoise": {"base_s": 0.02, "token_s": 0.0}}}},
    "pools": {"cpu": {"count": 1, "models": [MODEL]}},
    "classes": {
        "video": {
            "model": MODEL,
            "steps": [8],
            "arrivals": [{"kind": "poisson", "per_s": 9}],
        }
    },
}


async def logged(policy: SchedulingPolicy) -> ShardLog:
    """The log of a world under a policy."""
    world = World(
        scenario(
            parse(Trace, {**WORLD, "policy": {"batch_units_max": policy.batch_units_max}}, "w")
        ),
        seed=3,
    )
    entries: list[Entry] = []
    world.listen(entries.append)
    world.run()
    log = ShardLog()
    if not isinstance(entries[0].event, LeaderElected):
        await log.take(elected(policy=policy), entries[0].now, ())
    for entry in entries:
        event = entry.event
        if isinstance(event, LeaderElected):
            event = elected(event.epoch, anew=event.anew, policy=policy)
        await log.take(event, entry.now, entry.decisions)
    assert any(isinstance(entry.event, RequestSubmitted) for entry in entries)
    return log


async def what_if(log: ShardLog, policy: str, subject: str = "") -> ReplayReport:
    source = WhatIfSource(log=log.store, shard=SHARD, catalog=Catalog.load())
    request = ReplayRequest(kind=ReplayKind.DECISION, subject_id=subject, policy=policy)
    return await replay_what_if(source, request, lambda _: None)


def by_name(report: ReplayReport) -> dict[str, PolicyFigures]:
    return {one.policy: one for one in report.policies}


async def test_another_policy_is_compared_over_the_same_arrivals() -> None:
    report = await what_if(await logged(PAIRS), policy_document(TOGETHER))
    figures = by_name(report)
    then, simulated, now = (figures[name] for name in ("logged", "logged_simulated", "what_if"))
    assert then.requests == simulated.requests == now.requests > 10
    # The simulation of what was logged is close to the log.
    assert simulated.total_seconds_p50 == pytest.approx(then.total_seconds_p50, rel=0.2)
    assert simulated.mean_batch_size == pytest.approx(then.mean_batch_size, rel=0.1)
    # Sharing pays here.
    assert now.mean_batch_size > 1.5 * then.mean_batch_size
    assert now.total_seconds_p95 < 0.8 * simulated.total_seconds_p95
    assert "totals shrink by" in report.headline
    assert report.promise.kind == "none"
    assert "measured" in report.promise.reason


async def test_the_logged_policy_changes_nothing() -> None:
    report = await what_if(await logged(TOGETHER), policy_document(TOGETHER))
    figures = by_name(report)
    before, after = figures["logged_simulated"], figures["what_if"]
    assert before.total_seconds_p95 == after.total_seconds_p95
    assert "totals stay as they are" in report.headline


async def test_a_policy_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidField, match="no_such_knob"):
        await what_if(ShardLog(), "no_such_knob: 1")


async def test_a_policy_is_over_all_requests() -> None:
    with pytest.raises(InvalidField):
        await what_if(ShardLog(), "batch_units_max: 2", "req_1")


async def test_without_requests_there_is_nothing_to_compare() -> None:
    with pytest.raises(FailedPrecondition):
        await what_if(ShardLog(), "batch_units_max: 2")


def test_the_line_through_measurements_is_never_below_zero() -> None:
    line = Line()
    for x, y in ((1, 3), (2, 5), (3, 7)):
        line.add(x, y)
    assert line.fitted == pytest.approx((1, 2))
    falling = Line()
    for x, y in ((1, 3), (2, 1)):
        falling.add(x, y)
    assert falling.fitted == (2, 0)
    same = Line()
    for y in (3, 5):
        same.add(2, y)
    assert same.fitted is None
    guess = CostPrior(phase="denoise", base_seconds=1, seconds_per_token=0.5)
    assert same.scaled(guess) == (2, 1)
