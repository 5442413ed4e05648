"""What a unit waited for, with whom it ran, and how long."""

import pytest

from fastvideo.explain.types import UnitOutcome, WaitCause
from fastvideo.scheduling.events import (
    DeferLoop,
    LeaderElected,
    RequestSnapshotted,
    WorkerReattached,
    YieldBatch,
)
from fastvideo.scheduling.work import UnitKind
from tests.unit.explain.tale import (
    ME,
    OTHER,
    THIRD,
    Tale,
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
THEIRS = ref(OTHER)


def test_a_unit_that_ran_at_once_waited_for_the_command_alone() -> None:
    tale = Tale()
    tale.begins()
    tale.decides(0.0, dispatch("1-1", (MINE, 0), predicted=0.9))
    tale.hears(1.2, executed("1-1", result(MINE, 0, 1.0, ends=True), seconds=1.0))
    told = tale.unit(0)
    assert waits(told) == [("delivery", 0.0, 0.1)]
    assert (since(told.started_at), since(told.ended_at)) == (0.1, 1.1)
    assert (told.predicted_seconds, told.measured_seconds, told.device_seconds) == (0.9, 1.0, 1.0)
    assert (told.batch_id, told.batch_size, told.shared_with) == ("1-1", 1, ())
    assert told.outcome is UnitOutcome.DONE


def test_a_unit_waits_behind_the_batch_that_has_its_worker() -> None:
    tale = Tale()
    tale.decides(-0.5, dispatch("1-1", (THEIRS, 0)))
    tale.begins()
    tale.hears(1.0, executed("1-1", result(THEIRS, 0, 1.5), seconds=1.5))
    tale.decides(1.0, dispatch("1-2", (MINE, 0)))
    tale.hears(2.0, executed("1-2", result(MINE, 0, 1.0, ends=True), seconds=1.0))
    (wait,) = tale.unit(0).waits
    assert (wait.cause, wait.seconds, wait.batch_ids) == (WaitCause.BATCH, 1.0, ("1-1",))
    (behind,) = [one for one in tale.explained().batches if one.batch_id == "1-1"]
    assert behind.request_ids == (OTHER,)
    assert (behind.kind, behind.measured_seconds) == (UnitKind.DIFFUSION_STEP, 1.5)


def test_what_runs_on_another_worker_is_nothing_to_wait_for() -> None:
    tale = Tale()
    tale.decides(0.0, dispatch("1-1", (THEIRS, 0), worker="w2"))
    tale.begins()
    tale.decides(1.0, dispatch("1-2", (MINE, 0)))
    tale.hears(1.5, executed("1-1", result(THEIRS, 0, 1.5), seconds=1.5, worker="w2"))
    assert waits(tale.unit(0, now=1.0)) == [("delivery", 0.0, 1.0)]


def test_a_deferred_unit_waits_for_the_resource_that_is_named() -> None:
    tale = Tale()
    tale.decides(0.0, dispatch("1-1", (THEIRS, 0)))
    tale.begins(0.2)
    tale.decides(0.5, DeferLoop(loop=MINE, reason="memory:activations: 10 of 8 bytes"))
    tale.hears(2.0, executed("1-1", result(THEIRS, 0, 2.0), seconds=2.0))
    tale.decides(2.0, dispatch("1-2", (MINE, 0)))
    told = tale.unit(0)
    assert waits(told) == [("batch", 0.2, 0.3), ("resource", 0.5, 1.5)]
    assert told.waits[1].reason == "memory:activations: 10 of 8 bytes"
    assert told.waits[1].batch_ids == ("1-1",)


def test_a_deferral_of_another_request_is_not_mine() -> None:
    tale = Tale()
    tale.begins()
    tale.decides(0.5, DeferLoop(loop=THEIRS, reason="memory"))
    tale.decides(1.0, dispatch("1-1", (MINE, 0)))
    assert [cause for cause, _, _ in waits(tale.unit(0, now=1.0))] == ["delivery"]


def test_waiting_in_the_worker_s_queue_is_told_apart_from_the_way() -> None:
    tale = Tale()
    tale.begins()
    tale.decides(0.0, dispatch("1-1", (MINE, 0)))
    report = executed("1-1", result(MINE, 0, 1.0, ends=True), seconds=1.0, waited=0.6)
    tale.hears(1.8, report)
    told = tale.unit(0)
    assert waits(told) == [("delivery", 0.0, 0.1), ("batch", 0.1, 0.6)]
    assert since(told.started_at) == 0.7


def test_a_shared_batch_names_the_others_and_divides_its_seconds() -> None:
    tale = Tale()
    tale.begins()
    third = ref(THIRD)
    tale.decides(0.0, dispatch("1-1", (MINE, 0), (THEIRS, 3), (third, 1)))
    results = [result(MINE, 0, 1.2), result(THEIRS, 3, 1.2), result(third, 1, 1.2)]
    tale.hears(1.2, executed("1-1", *results, seconds=1.2))
    told = tale.unit(0)
    assert (told.batch_size, told.shared_with) == (3, (OTHER, THIRD))
    assert told.device_seconds == pytest.approx(0.4)


def test_each_step_of_a_window_is_a_unit_though_only_the_first_was_offered() -> None:
    tale = Tale()
    tale.begins()
    tale.decides(0.0, dispatch("1-1", (MINE, 0), (THEIRS, 0), window=3, predicted=3.0))
    steps = [
        *(result(MINE, 0, 0.5), result(THEIRS, 0, 0.5)),
        *(result(MINE, 1, 0.7), result(THEIRS, 1, 0.7, ends=True)),
        result(MINE, 2, 0.3, then=plan(MINE, 3)),
    ]
    tale.hears(1.5, executed("1-1", *steps, seconds=1.5), dispatch("1-2", (MINE, 3)))
    told = [tale.unit(step) for step in range(4)]
    assert [one.window_position for one in told] == [1, 2, 3, 1]
    assert [since(one.ready_at) for one in told] == [0.0, 0.5, 1.2, 1.5]
    assert [since(one.started_at) for one in told[:3]] == [0.0, 0.5, 1.2]
    assert [one.measured_seconds for one in told[:3]] == [0.5, 0.7, 0.3]
    assert [one.predicted_seconds for one in told[:3]] == [1.0, 1.0, 1.0]
    assert [one.batch_size for one in told[:3]] == [2, 2, 1]
    assert [one.shared_with for one in told[:3]] == [(OTHER,), (OTHER,), ()]
    assert [one.device_seconds for one in told[:3]] == pytest.approx([0.25, 0.35, 0.3])
    assert [one.waits for one in told[1:3]] == [(), ()]
    (batch,) = [one for one in tale.explained().batches if one.batch_id == "1-1"]
    assert (batch.steps, batch.window) == (3, 3)


def test_a_window_that_was_told_to_stop_says_why() -> None:
    tale = Tale()
    tale.begins()
    tale.decides(0.0, dispatch("1-1", (MINE, 0), window=8))
    tale.decides(0.2, YieldBatch(batch_id="1-1", worker_id="w1", reason="req_other waits"))
    tale.hears(1.0, executed("1-1", result(MINE, 0, 1.0, then=plan(MINE, 1)), seconds=1.0))
    (batch,) = tale.explained().batches
    assert (batch.steps, batch.window, batch.yield_reason) == (1, 8, "req_other waits")


def test_a_unit_off_the_compute_slot_has_no_share_of_the_device() -> None:
    tale = Tale()
    tale.begins()
    write = plan(ref(), 1, compute=False)
    tale.decides(0.0, dispatch("1-1", (MINE, 0)))
    tale.hears(1.0, executed("1-1", result(MINE, 0, 1.0, then=write), seconds=1.0))
    kind = UnitKind.ARTIFACT_WRITE
    tale.decides(1.0, dispatch("1-2", (MINE, 1), kind=kind))
    tale.hears(3.0, executed("1-2", result(MINE, 1, 2.0, ends=True), seconds=2.0, kind=kind))
    tale.decides(3.0, complete())
    assert tale.unit(1).device_seconds == 0
    sums = tale.explained().totals
    assert (sums.device_busy_seconds, sums.io_seconds) == (1.0, 2.0)


def test_a_report_whose_dispatch_is_not_in_the_log_is_explained_from_itself() -> None:
    tale = Tale()
    tale.begins()
    tale.hears(2.0, executed("1-9", result(MINE, 0, 0.5, ends=True), seconds=0.5))
    told = tale.unit(0)
    assert told.dispatched_at is None
    assert (since(told.started_at), since(told.ended_at)) == (1.5, 2.0)
    assert sum(wait.seconds for wait in told.waits) == pytest.approx(1.5)


def test_a_unit_that_is_reported_twice_is_told_once() -> None:
    tale = Tale()
    tale.begins()
    tale.decides(0.0, dispatch("1-1", (MINE, 0)))
    report = executed("1-1", result(MINE, 0, 1.0, then=plan(MINE, 1)), seconds=1.0)
    tale.hears(1.0, report)
    tale.hears(1.5, report)
    assert [one.unit_id for one in tale.explained().units] == [
        f"{ME}/denoise/1/{n}" for n in (0, 1)
    ]
    assert since(tale.unit(0).ended_at) == 1.0
    assert tale.explained().totals.units == 1


def test_a_snapshot_while_it_runs_is_a_mark() -> None:
    tale = Tale()
    tale.begins()
    tale.hears(1.0, RequestSnapshotted(worker_id="w1", request_id=ME, attempt=1, seconds=0.02))
    assert "snapshotted" in [mark.name for mark in tale.explained().marks]


def test_a_plan_of_a_loop_that_was_never_assigned_offers_nothing() -> None:
    tale = Tale()
    tale.hears(0.5, prepared())
    assert tale.explained().units == ()


def test_time_in_which_a_worker_was_idle_is_not_blamed_on_others() -> None:
    tale = Tale()
    tale.decides(0.0, dispatch("1-1", (THEIRS, 0)))
    tale.begins()
    tale.hears(0.5, executed("1-1", result(THEIRS, 0, 0.5), seconds=0.5))
    tale.decides(1.5, dispatch("1-2", (THEIRS, 1)))
    tale.hears(1.8, executed("1-2", result(THEIRS, 1, 0.3), seconds=0.3))
    tale.decides(1.8, dispatch("1-3", (MINE, 0)))
    told = tale.unit(0, now=1.8)
    assert waits(told) == [("batch", 0.0, 0.5), ("delivery", 0.5, 1.0), ("batch", 1.5, 0.3)]
    assert [wait.batch_ids for wait in told.waits] == [("1-1",), (), ("1-2",)]


def test_a_scheduler_that_was_away_is_the_cause_since_it_was_last_heard_of() -> None:
    tale = Tale()
    tale.decides(0.0, dispatch("1-1", (THEIRS, 0)))
    tale.begins(0.1)
    tale.hears(3.0, LeaderElected(scheduler_id="s2", epoch=2))
    tale.hears(3.1, executed("1-1", result(THEIRS, 0, 0.5), seconds=0.5))
    tale.hears(3.2, WorkerReattached(worker_id="w1"), dispatch("2-1", (MINE, 0)))
    assert [(cause, seconds) for cause, _, seconds in waits(tale.unit(0, now=3.2))] == [
        ("loss", 3.1)
    ]
