"""Lanes: in order, bounded, beside the event loop."""

import asyncio
import threading
from functools import partial

import pytest

from fastvideo.errors import ResourceExhausted
from fastvideo_worker.lanes import Lane


async def test_calls_of_one_thread_run_in_order_off_the_event_loop() -> None:
    lane = Lane("compute", threads=1, queue_max=10)
    ran: list[int] = []
    threads = set()

    def call(number: int) -> int:
        ran.append(number)
        threads.add(threading.current_thread())
        return number

    answers = await asyncio.gather(*(lane.run(partial(call, number)) for number in range(5)))
    lane.close()
    assert answers == ran == [0, 1, 2, 3, 4]
    assert threading.main_thread() not in threads
    assert len(threads) == 1


async def test_a_full_queue_is_refused_by_name_and_empties() -> None:
    lane = Lane("compute", threads=1, queue_max=2)
    proceed = threading.Event()
    waiting = [lane.submit(proceed.wait) for _ in range(2)]
    with pytest.raises(ResourceExhausted) as caught:
        lane.submit(proceed.wait)
    assert caught.value.subject == "compute"
    proceed.set()
    await asyncio.gather(*waiting)
    assert lane.waiting == 0
    lane.close()


async def test_a_call_that_nobody_waits_for_runs_to_its_end() -> None:
    lane = Lane("compute", threads=1, queue_max=2)
    proceed, ended = threading.Event(), threading.Event()

    def call() -> None:
        proceed.wait(30)
        ended.set()

    waiting = asyncio.create_task(lane.run(call))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    proceed.set()
    await asyncio.to_thread(ended.wait, 60)
    assert ended.is_set()
    lane.close()


async def test_a_call_that_runs_alone_waits_for_those_before_it_and_holds_up_those_after() -> None:
    lane = Lane("compute", threads=2, queue_max=10)
    proceed = [threading.Event() for _ in range(2)]
    begun: list[str] = []
    first_two = threading.Barrier(3)

    def before(number: int) -> None:
        first_two.wait(30)
        proceed[number].wait(30)
        begun.append(f"ended {number}")

    waiting = [asyncio.create_task(lane.run(partial(before, number))) for number in range(2)]
    # Both run at the same time.
    await asyncio.to_thread(first_two.wait, 60)
    alone = asyncio.create_task(lane.run_alone(lambda: begun.append("alone")))
    after = asyncio.create_task(lane.run(lambda: begun.append("after")))
    await asyncio.sleep(0)
    proceed[0].set()
    await waiting[0]
    assert begun == ["ended 0"]
    proceed[1].set()
    await asyncio.gather(waiting[1], alone, after)
    lane.close()
    assert begun == ["ended 0", "ended 1", "alone", "after"]
