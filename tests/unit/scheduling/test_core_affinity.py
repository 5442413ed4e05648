"""Requests go where what they need is cached, when that costs little."""

from dataclasses import replace

import pytest

from fastvideo.model.caching import CacheClass, CacheLookup, CacheOutcome
from fastvideo.scheduling.affinity import Affinity
from fastvideo.scheduling.events import (
    WorkerDraining,
)
from fastvideo.scheduling.policy import SchedulingPolicy
from tests.unit.scheduling.timed import ONLY, Timed, one_unit, places

HIT = CacheLookup(cache_class=CacheClass.TEXT_ENCODER_OUTPUT, outcome=CacheOutcome.MISS)


class Cached(Timed):
    """Workers look up the text of their requests."""

    def result(self, worker, ref, unit_id):
        return replace(super().result(worker, ref, unit_id), cache_lookups=(HIT,))


def cached(**policy):
    world = Cached(policy=SchedulingPolicy(**policy), catalog=ONLY, plan=one_unit)
    world.attach("w1")
    world.attach("w2")
    return world


def placed_now(world, name, **options):
    world.submit(name, **options)
    where = places(world)[name]
    world.finish()
    return where


@pytest.mark.row("SCH-14")
def test_a_request_goes_where_its_text_is_cached_when_that_costs_little():
    world = cached(affinity_seconds_max=0.05)
    # r1 teaches the cost and the place of its text; w1 is as good as w2 for anybody else.
    first = placed_now(world, "r1", prompt="a red three")
    other = {"w1": "w2", "w2": "w1"}[first]
    assert placed_now(world, "r2", prompt="a red three") == first
    # Four requests, 10 ms each: more work there, still worth it; of five, no more.
    for n in range(4):
        world.submit(f"same-{n}", prompt="a red three")
    assert {places(world)[f"same-{n}"] for n in range(4)} == {first}
    for n in range(8):
        world.submit(f"more-{n}", prompt="a red three")
    assert other in places(world).values(), "no more than the seconds that a hit is worth"
    world.finish()


def test_without_a_worth_the_least_work_decides():
    world = cached(affinity_seconds_max=0.0)
    first = placed_now(world, "r1", prompt="a red three")
    world.submit("busy", prompt="x")
    world.submit("r2", prompt="a red three")
    assert {places(world)["busy"], places(world)["r2"]} == {"w1", "w2"}
    assert first in ("w1", "w2")


def test_a_session_stays_with_its_worker():
    world = cached()
    world.submit("s1", session="s")
    world.submit("x1")
    assert places(world)["s1"] != places(world)["x1"]
    world.finish()
    for n in range(5):
        assert placed_now(world, f"next-{n}", session="s") == places(world)["s1"]


def test_a_session_leaves_a_worker_that_takes_no_more():
    world = cached()
    world.submit("s1", session="s")
    home = places(world)["s1"]
    world.finish()
    world.tell(WorkerDraining(worker_id=home))
    assert placed_now(world, "next", session="s") != home


def test_a_worker_that_began_anew_has_nothing_cached():
    world = cached()
    first = placed_now(world, "r1", prompt="a red three")
    world.lose(first)
    world.attach(first)
    world.submit("busy")
    cold = places(world)["busy"]
    world.submit("r2", prompt="a red three")
    assert places(world)["r2"] != cold


def test_what_is_remembered_of_a_cache_is_bounded():
    affinity = Affinity()
    for n in range(100):
        affinity.learn("w1", (f"text/{n}",), 10)
    assert len(affinity.keys["w1"]) == len(affinity.workers) == 10
    assert affinity.warm(("text/99", "text/1")) == {"w1": 0.5}
    affinity.learn("w1", ("text/90",), 10)
    affinity.learn("w1", ("new",), 10)
    assert affinity.warm(("text/90",)) == {"w1": 1.0}, "used again, so not the oldest"
    assert affinity.warm(("text/91",)) == {}
    affinity.forget("w1")
    assert affinity.workers == {}
    assert affinity.keys == {}
