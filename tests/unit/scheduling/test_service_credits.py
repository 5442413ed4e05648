"""A worker is never given more than it takes."""

from fastvideo.scheduling.commands import ExecuteBatch, PrepareLoop, ReleaseLoops, YieldBatch
from fastvideo.scheduling.events import (
    BatchExecuted,
    LoopPrepared,
    ResidentLoop,
    WorkerAttached,
    WorkerReattached,
)
from fastvideo.scheduling.work import LoopRef, UnitKind, WorkPlan
from fastvideo_scheduler.credits import Credits
from tests.unit.scheduling.world import request


def prepare(request_id: str) -> PrepareLoop:
    loop = LoopRef(request_id=request_id, node_id="denoise", attempt=1)
    return PrepareLoop(loop=loop, loop_id="denoise", request=request(request_id))


def batch(batch_id: str) -> ExecuteBatch:
    return ExecuteBatch(batch_id=batch_id, kind=UnitKind.DIFFUSION_STEP)


def prepared(command: PrepareLoop) -> LoopPrepared:
    return LoopPrepared(worker_id="w1", plan=WorkPlan(loop=command.loop))


def executed(batch_id: str) -> BatchExecuted:
    return BatchExecuted(worker_id="w1", batch_id=batch_id, kind=UnitKind.DIFFUSION_STEP)


def credits(limit: int) -> Credits:
    made = Credits()
    assert list(made.take_back(WorkerAttached(credits=limit))) == []
    return made


def test_a_worker_that_says_nothing_gets_all():
    made = credits(0)
    commands = [prepare(f"r{n}") for n in range(9)]
    assert [c for command in commands for c in made.give(command)] == commands


def test_the_rest_goes_as_answers_come_in_order():
    made = credits(2)
    first, second, third = prepare("r1"), batch("b1"), prepare("r2")
    assert [c for command in (first, second, third) for c in made.give(command)] == [first, second]
    assert list(made.take_back(executed("b1"))) == [third]
    assert list(made.take_back(prepared(first))) == []
    assert list(made.give(batch("b2"))) == [batch("b2")]


def test_what_asks_for_no_room_goes_at_once():
    made = credits(1)
    list(made.give(prepare("r1")))
    assert list(made.give(YieldBatch(batch_id="b1"))) == [YieldBatch(batch_id="b1")]


def test_what_is_released_before_it_was_sent_is_not_sent():
    made = credits(1)
    first, held, other = prepare("r1"), prepare("r2"), prepare("r3")
    for command in (first, held, other):
        list(made.give(command))
    release = ReleaseLoops(request_id="r2", attempt=1)
    assert list(made.give(release)) == [release]
    assert list(made.take_back(prepared(first))) == [other]


def test_the_room_of_what_is_released_is_free():
    made = credits(1)
    list(made.give(prepare("r1")))
    list(made.give(prepare("r2")))
    release = ReleaseLoops(request_id="r1", attempt=1)
    assert list(made.give(release)) == [release, prepare("r2")]


def test_a_worker_that_comes_back_has_what_it_says():
    made = credits(2)
    list(made.give(batch("lost")))
    list(made.give(batch("kept")))
    assert list(made.take_back(WorkerReattached(batch_ids=("kept",)))) == []
    assert list(made.give(batch("b3"))) == [batch("b3")]
    assert list(made.give(batch("b4"))) == []


def test_loops_that_a_worker_still_makes_when_it_comes_back_have_their_room():
    made = credits(2)
    first = prepare("r1")
    loops = (
        ResidentLoop(loop=first.loop, preparing=True),
        ResidentLoop(loop=prepare("r2").loop, state_version=3),
    )
    assert list(made.take_back(WorkerReattached(loops=loops, batch_ids=("kept",)))) == []
    assert list(made.give(batch("b1"))) == []
    assert list(made.take_back(prepared(first))) == [batch("b1")]
