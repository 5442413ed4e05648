"""What became of a request between its acceptance and its end."""

import pytest

from fastvideo.explain.explanation import Page
from fastvideo.explain.types import UnitOutcome, WaitCause
from fastvideo.requests.types import ErrorDetail, RequestMetrics
from fastvideo.scheduling.events import (
    CancelLoop,
    CancelRequest,
    FailRequest,
    LeaderElected,
    PreemptRequest,
    QueueRequest,
    RequestSnapshotted,
    RestartRequest,
    WorkerAttached,
    WorkerDetached,
    WorkerLost,
    WorkerReattached,
)
from fastvideo.scheduling.work import LoopSnapshot
from tests.unit.explain.tale import (
    ME,
    OTHER,
    Tale,
    assign,
    complete,
    dispatch,
    executed,
    plan,
    prepared,
    ref,
    result,
    since,
    waits,
)

MINE = ref()
AGAIN = ref(attempt=2)
LOST = "w1 was silent for 5.0 s"


def finish(tale: Tale, loop_attempt: int, begun: float, worker: str = "w1") -> None:
    """Run one unit of an attempt and complete."""
    loop = ref(attempt=loop_attempt)
    tale.decides(begun, dispatch("9-1", (loop, 0), worker=worker))
    report = executed("9-1", result(loop, 0, 1.0, ends=True), seconds=1.0, worker=worker)
    tale.hears(begun + 1.0, report, complete())


def test_a_request_without_a_place_waits_in_the_queue_with_position_and_reason() -> None:
    tale = Tale()
    tale.decides(0.1, QueueRequest(request_id=ME, position=3, reason="every worker of m is full"))
    tale.decides(2.1, assign())
    tale.hears(2.4, prepared(seconds=0.25))
    finish(tale, 1, 2.4)
    told = tale.explained()
    assert waits(told) == [
        ("delivery", 0.0, 0.1),
        ("place", 0.1, 2.0),
        ("delivery", 2.1, 0.05),
        ("preparation", 2.15, 0.25),
    ]
    assert (told.waits[1].position, told.waits[1].reason) == (3, "every worker of m is full")
    assert told.headline == (
        "completed after 3.40 s: waited 2.40 s (2.00 s for a place (position 3); 0.25 s while "
        "loops were made; 0.15 s for messages), ran 1.00 s on the device in 1 unit"
    )


def test_the_parts_of_the_time_add_up_to_the_whole() -> None:
    tale = Tale()
    tale.decides(0.1, QueueRequest(request_id=ME, position=1, reason="full"))
    tale.decides(0.7, assign())
    tale.hears(1.0, prepared(seconds=0.1))
    finish(tale, 1, 1.3)
    sums = tale.explained().totals
    parts = sum(sums.waited_by_cause.values()) + sums.device_busy_seconds + sums.io_seconds
    assert parts == pytest.approx(sums.total_seconds)
    assert sums.total_seconds == pytest.approx(2.3)


def test_a_request_that_waits_says_for_what() -> None:
    tale = Tale()
    tale.decides(0.1, QueueRequest(request_id=ME, position=2, reason="full"))
    told = tale.explained(now=5.1)
    assert told.waiting is not None
    assert (told.waiting.cause, told.waiting.position) == (WaitCause.PLACE, 2)
    assert told.waiting.seconds == pytest.approx(5.0)
    assert told.headline.startswith("waits for a place (full), 5.10 s after it was accepted")


def test_a_request_that_nobody_has_decided_on_yet_waits_for_messages() -> None:
    told = Tale().explained(now=0.5)
    assert told.waiting is not None
    assert (told.waiting.cause, told.units, told.stages) == (WaitCause.DELIVERY, (), ())


def test_a_request_that_runs_waits_for_nothing() -> None:
    tale = Tale()
    tale.begins()
    tale.decides(0.0, dispatch("1-1", (MINE, 0)))
    told = tale.explained(now=2.0)
    assert told.waiting is None
    assert told.units[0].outcome is UnitOutcome.RUNNING
    assert told.totals.device_busy_seconds == pytest.approx(2.0)
    assert told.headline.startswith("runs, 2.00 s after it was accepted")


def test_a_unit_that_waits_now_names_the_batch_in_its_way() -> None:
    tale = Tale()
    tale.decides(0.0, dispatch("1-1", (ref(OTHER), 0)))
    tale.begins()
    told = tale.explained(now=3.0)
    assert told.waiting is not None
    assert (told.waiting.cause, told.waiting.batch_ids) == (WaitCause.BATCH, ("1-1",))
    assert told.units[0].outcome is UnitOutcome.WAITING


def test_after_a_lost_worker_the_next_attempt_explains_the_gap() -> None:
    tale = Tale()
    tale.hears(0.0, WorkerAttached(worker_id="w1", incarnation="i1"))
    tale.begins()
    tale.decides(0.0, dispatch("1-1", (MINE, 0)))
    tale.hears(
        2.0,
        WorkerLost(worker_id="w1", incarnation="i1", reason="silent"),
        RestartRequest(request_id=ME, attempt=2, reason=LOST),
        assign(AGAIN, "w2"),
    )
    tale.hears(2.0, prepared(AGAIN, worker="w2", seconds=0.0))
    finish(tale, 2, 2.0, "w2")
    told = tale.explained()
    first, second = told.attempts
    assert (first.attempt, first.worker_id, first.end, first.units) == (
        1,
        "w1",
        "worker w1 was lost: silent",
        0,
    )
    assert (second.attempt, second.worker_id, second.end, second.units) == (2, "w2", "completed", 1)
    lost = tale.unit(0)
    assert (lost.outcome, lost.started_at) == (UnitOutcome.DROPPED, None)
    assert waits(lost) == [("loss", 0.0, 2.0)]
    assert told.totals.waited_by_cause == {"loss": pytest.approx(2.0)}
    assert told.headline.endswith("; interrupted: worker w1 was lost: silent")


def test_the_loss_of_an_older_incarnation_changes_nothing() -> None:
    tale = Tale()
    tale.hears(0.0, WorkerAttached(worker_id="w1", incarnation="i2"))
    tale.begins()
    tale.decides(0.0, dispatch("1-1", (MINE, 0)))
    tale.hears(0.5, WorkerLost(worker_id="w1", incarnation="i1", reason="silent"))
    tale.hears(1.0, executed("1-1", result(MINE, 0, 1.0, ends=True), seconds=1.0), complete())
    assert [attempt.end for attempt in tale.explained().attempts] == ["completed"]
    assert tale.unit(0).outcome is UnitOutcome.DONE


def test_a_late_result_of_an_older_attempt_is_dropped() -> None:
    tale = Tale()
    tale.begins()
    tale.decides(0.0, dispatch("1-1", (MINE, 0)))
    tale.decides(1.0, RestartRequest(request_id=ME, attempt=2, reason="w1 is draining"))
    tale.decides(1.0, assign(AGAIN, "w2"))
    tale.hears(1.5, executed("1-1", result(MINE, 0, 1.4, then=plan(MINE, 1)), seconds=1.4))
    told = tale.explained(now=2.0)
    assert [(one.unit_id, one.outcome) for one in told.units] == [
        (f"{ME}/denoise/1/0", UnitOutcome.DROPPED)
    ]
    assert told.totals.units == 0


def test_a_preempted_request_says_who_paused_it_and_where_it_went_on() -> None:
    tale = Tale()
    tale.begins()
    tale.decides(0.0, dispatch("1-1", (MINE, 0)))
    tale.decides(0.4, PreemptRequest(request_id=ME, attempt=1, worker_id="w1", reason="priority 9"))
    tale.hears(1.0, executed("1-1", result(MINE, 0, 1.0, then=plan(MINE, 1)), seconds=1.0))
    saved = LoopSnapshot(loop=MINE, loop_id="denoise", steps_done=1, steps=4)
    tale.decides(1.1, QueueRequest(request_id=ME, position=1, reason="full"))
    tale.decides(3.0, assign(MINE, "w2", saved))
    tale.hears(3.2, prepared(MINE, 1, "w2", seconds=0.2))
    tale.decides(3.2, dispatch("1-2", (MINE, 1), worker="w2"))
    report = executed("1-2", result(MINE, 1, 1.0, ends=True), seconds=1.0, worker="w2")
    tale.hears(4.2, report, complete())
    told = tale.explained()
    assert [(one.end, one.resumed_from, one.units) for one in told.attempts] == [
        ("preempted: priority 9", "", 1),
        ("completed", "denoise 1/4", 1),
    ]
    assert [stage.restored_from for stage in told.stages] == ["", "denoise 1/4"]
    # The unit that was ready when it had to go waited through the pause.
    assert waits(tale.unit(1)) == [("preemption", 1.0, 2.0), ("delivery", 3.0, 0.2)]
    assert told.totals.waited_by_cause["preemption"] == pytest.approx(2.0)
    assert told.totals.units == 2


def test_a_preempted_request_may_go_on_as_another_attempt() -> None:
    tale = Tale()
    tale.begins()
    tale.decides(0.0, dispatch("1-1", (MINE, 0)))
    tale.decides(0.4, PreemptRequest(request_id=ME, attempt=1, worker_id="w1", reason="priority 9"))
    tale.hears(1.0, executed("1-1", result(MINE, 0, 1.0, then=plan(MINE, 1)), seconds=1.0))
    saved = LoopSnapshot(loop=MINE, loop_id="denoise", steps_done=1, steps=4)
    tale.hears(
        1.2,
        RequestSnapshotted(worker_id="w1", request_id=ME, attempt=1, snapshots=(saved,)),
        RestartRequest(request_id=ME, attempt=2, reason="set aside: priority 9"),
    )
    tale.decides(3.0, assign(AGAIN, "w1", saved))
    tale.hears(3.0, prepared(AGAIN, seconds=0.0))
    finish(tale, 2, 3.0)
    told = tale.explained()
    assert [one.end for one in told.attempts] == ["preempted: priority 9", "completed"]
    assert told.attempts[1].resumed_from == "denoise 1/4"
    assert told.totals.waited_by_cause == pytest.approx({"preemption": 2.0})
    names = [mark.name for mark in told.marks]
    assert names == ["preempted", "snapshotted", "set_aside", "ended"]


def test_a_new_leader_that_goes_on_with_the_loop_explains_the_late_report() -> None:
    tale = Tale()
    tale.begins()
    tale.decides(0.0, dispatch("1-1", (MINE, 0)))
    tale.hears(3.0, LeaderElected(scheduler_id="s2", epoch=2))
    tale.hears(3.5, executed("1-1", result(MINE, 0, 1.0, then=plan(MINE, 1)), seconds=1.0))
    tale.hears(3.7, WorkerReattached(worker_id="w1"), dispatch("2-1", (MINE, 1)))
    tale.hears(4.7, executed("2-1", result(MINE, 1, 1.0, ends=True), seconds=1.0), complete())
    told = tale.explained()
    assert [one.outcome for one in told.units] == [UnitOutcome.DONE] * 2
    assert len(told.attempts) == 1
    first = tale.unit(0)
    assert (since(first.started_at), since(first.ended_at)) == (0.005, 1.005)
    assert "elected" in [mark.name for mark in told.marks]
    # Nobody led while its next unit could have run, and then its worker was not back yet.
    assert waits(tale.unit(1)) == [("loss", 3.5, 0.2)]
    assert told.totals.waited_by_cause["loss"] == pytest.approx(2.7, abs=0.01)


def test_a_batch_that_never_arrived_is_given_again_and_blocks_nobody() -> None:
    tale = Tale()
    tale.begins()
    tale.decides(0.0, dispatch("1-1", (MINE, 0)))
    tale.hears(1.0, WorkerDetached(worker_id="w1", reason="broken"))
    tale.hears(2.0, WorkerReattached(worker_id="w1"), dispatch("1-2", (MINE, 0)))
    tale.hears(3.0, executed("1-2", result(MINE, 0, 1.0, ends=True), seconds=1.0), complete())
    told = tale.explained()
    (only,) = told.units
    assert (only.batch_id, since(only.started_at)) == ("1-2", 2.0)
    assert waits(only) == [("delivery", 0.0, 1.0), ("loss", 1.0, 1.0)]
    assert [mark.name for mark in told.marks] == ["worker_detached", "worker_reattached", "ended"]
    assert len(told.attempts) == 1


def test_a_new_leader_that_begins_it_again_makes_an_attempt() -> None:
    tale = Tale()
    tale.begins()
    tale.decides(0.0, dispatch("1-1", (MINE, 0)))
    tale.hears(3.0, LeaderElected(scheduler_id="s2", epoch=2))
    tale.decides(3.5, assign(AGAIN, "w1"))
    tale.hears(3.5, prepared(AGAIN, seconds=0.0))
    finish(tale, 2, 3.5)
    told = tale.explained()
    assert [one.end for one in told.attempts] == ["another scheduler took over", "completed"]
    assert told.totals.waited_by_cause == {"loss": pytest.approx(3.5)}


def test_a_cancelled_request_says_where_it_stopped_and_what_was_dropped() -> None:
    tale = Tale()
    tale.begins()
    decision = CancelRequest(
        request_id=ME, reason="user", boundary="denoise 0/4", metrics=RequestMetrics()
    )
    tale.decides(1.0, decision)
    told = tale.explained()
    assert told.attempts[0].end == "cancelled: user, at denoise 0/4"
    assert told.units[0].outcome is UnitOutcome.DROPPED
    assert told.headline.startswith("cancelled after 1.00 s")
    assert told.waiting is None


def test_a_request_that_failed_before_it_had_a_place_is_explained() -> None:
    tale = Tale()
    error = ErrorDetail(reason="NO_PROGRAM", message="no such program")
    tale.decides(0.2, FailRequest(request_id=ME, error=error, metrics=RequestMetrics()))
    told = tale.explained()
    assert told.headline.startswith("failed after 0.20 s")
    assert (told.attempts, told.stages) == ((), ())


def test_units_come_page_by_page_and_everything_else_is_whole() -> None:
    tale = Tale()
    tale.begins()
    for step in range(10):
        last = step == 9
        then = None if last else plan(MINE, step + 1)
        tale.decides(float(step), dispatch(f"1-{step}", (MINE, step)))
        report = executed(f"1-{step}", result(MINE, step, 1.0, then=then, ends=last), seconds=1.0)
        tale.hears(step + 1.0, report, *([complete()] if last else []))
    pages = [tale.explained(page=Page(first, 4)) for first in (0, 4, 8)]
    assert [len(page.units) for page in pages] == [4, 4, 2]
    assert len({unit.unit_id for page in pages for unit in page.units}) == 10
    assert {page.unit_count for page in pages} == {10}
    assert all(page.stages == pages[0].stages for page in pages)
    assert pages[0].stages[0].units == 10
    assert {batch.batch_id for batch in pages[1].batches} == {f"1-{step}" for step in range(4, 8)}


def test_a_cancelled_loop_waits_no_longer_while_the_others_go_on() -> None:
    tale = Tale()
    tale.begins()
    other = ref(node_id="audio")
    tale.decides(0.0, assign(other))
    tale.hears(0.0, prepared(other, seconds=0.0))
    tale.decides(1.0, CancelLoop(loop=other, worker_id="w1", reason="user"))
    finish(tale, 1, 1.0)
    told = tale.explained()
    (dropped,) = [unit for unit in told.units if unit.node_id == "audio"]
    assert (dropped.outcome, dropped.waited_seconds) == (UnitOutcome.DROPPED, 1.0)
    assert ("loop_cancelled", "audio: user") in [(mark.name, mark.text) for mark in told.marks]


def test_a_loop_whose_assignment_never_arrived_is_made_again() -> None:
    tale = Tale()
    tale.decides(0.0, assign())
    tale.hears(1.0, WorkerDetached(worker_id="w1", reason="broken"))
    tale.hears(2.0, WorkerReattached(worker_id="w1"), assign())
    tale.hears(2.5, prepared(seconds=0.5))
    finish(tale, 1, 2.5)
    told = tale.explained()
    assert [stage.units for stage in told.stages] == [0, 1]
    assert told.totals.waited_by_cause == pytest.approx(
        {"delivery": 1.0, "loss": 1.0, "preparation": 0.5}
    )
