"""Who waits is told so, with the place and the reason, and told again when these change."""

from datetime import UTC, datetime
from itertools import pairwise

from fastvideo.scheduling.events import QueueRequest, WorkerDraining
from fastvideo.scheduling.policy import SchedulingPolicy
from tests.unit.scheduling.timed import Timed
from tests.unit.scheduling.world import MODEL, START, Catalog, World, node, program, unit

ONLY = Catalog(programs={MODEL: program(node("only"))})


def plan(spec, loop, instance):
    steps = spec.sampling.steps
    return [unit(loop, n, steps, max_batch=1, instance=instance) for n in range(steps)]


def told(world, request_id):
    return [
        (decision.position, round((now - START).total_seconds(), 3))
        for _, now, decisions in world.history
        for decision in decisions
        if isinstance(decision, QueueRequest) and decision.request_id == request_id
    ]


def crowd(count=10, steps=30, **policy):
    world = Timed(
        policy=SchedulingPolicy(resident_requests_max=1, **policy), catalog=ONLY, plan=plan
    )
    world.attach()
    for n in range(count):
        world.submit(f"r{n}", steps=steps)
    return world


def test_places_are_told_as_they_change_and_not_too_often():
    world = crowd(queue_news_seconds_min=1.0)
    world.finish()
    news = told(world, "r9")
    # Three requests a second end, and once a second is told.
    places = [place for place, _ in news]
    assert places[0] == 9
    assert places == sorted(places, reverse=True)
    assert places[-1] in (1, 2, 3)
    times = [at for _, at in news[1:]]
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(times))
    assert len(news) <= 5


def test_every_change_is_told_when_the_policy_says_so():
    world = crowd(count=6, queue_news_seconds_min=0.0)
    world.finish()
    assert [place for place, _ in told(world, "r5")] == [5, 4, 3, 2, 1]


def test_only_the_first_of_a_line_are_told_again():
    world = crowd(count=8, queue_news_seconds_min=0.0, queue_news_requests_max=2)
    world.finish()
    assert [place for place, _ in told(world, "r7")] == [7, 2, 1]


def test_the_reason_is_kept_fresh():
    world = World(
        policy=SchedulingPolicy(resident_requests_max=1, queue_news_seconds_min=0.0),
        catalog=ONLY,
        plan=plan,
    )
    world.attach()
    for n in range(3):
        world.submit(f"r{n}")
    world.tell(WorkerDraining(worker_id="w1"))
    world.cancel("r1")
    reasons = [d.reason for d in world.made(QueueRequest) if d.request_id == "r2"]
    assert reasons == [
        f"all 1 places on workers with model {MODEL} are taken",
        f"all workers with model {MODEL} are draining",
    ]


def test_whoever_goes_ahead_moves_the_others_back():
    world = crowd(count=4, queue_news_seconds_min=0.0)
    world.submit("urgent", priority=1)
    assert told(world, "urgent") == [(1, 0.0)]
    assert told(world, "r1") == [(1, 0.0), (2, 0.0)]
    assert told(world, "r3") == [(3, 0.0), (4, 0.0)]


def test_places_follow_the_shares_of_tenants():
    world = Timed(
        policy=SchedulingPolicy(
            resident_requests_max=1, tenant_weights={"b": 2.0}, queue_news_seconds_min=0.0
        ),
        catalog=ONLY,
        plan=plan,
    )
    world.attach()
    world.submit("first", steps=4)
    world.finish()
    world.submit("a0", tenant="a", steps=4)
    for n in range(1, 4):
        world.submit(f"a{n}", tenant="a", steps=4)
    for n in range(6):
        world.submit(f"b{n}", tenant="b", steps=4)
    told_last = {d.request_id: d.position for d in world.made(QueueRequest)}
    order = sorted(told_last, key=lambda name: told_last[name])
    world.finish()
    ended = [name for name in world.ended_at if name in told_last]
    assert ended == order
    # Tenant b has two places for each of tenant a's.
    assert [name[0] for name in order[:6]].count("b") == 4


def test_a_tick_is_due_when_there_is_news():
    world = crowd(count=3, queue_news_seconds_min=5.0)
    assert world.core.next_deadline() is None
    world.cancel("r1")
    assert told(world, "r2") == [(2, 0.0), (1, 0.0)]
    world.submit("urgent", priority=1)
    due = world.core.next_deadline()
    assert due == datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)
    world.tick(5.0)
    assert told(world, "r2")[-1] == (2, 5.0)
    assert world.core.next_deadline() is None
