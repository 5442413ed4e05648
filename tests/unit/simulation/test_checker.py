"""The checker finds what a history must not have; each case changes a sound one in one place."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fastvideo.requests.types import ErrorDetail
from fastvideo.scheduling.events import (
    AssignLoop,
    BatchExecuted,
    CompleteRequest,
    Decision,
    DispatchBatch,
    FailRequest,
    LoopPrepared,
    ReleaseRequest,
    ReportProgress,
    RestartRequest,
    StartRequest,
    WorkerAttached,
)
from fastvideo.scheduling.inputs import CancelRequested, RequestSubmitted
from fastvideo.scheduling.policy import SloClass
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo.simulation.agenda import MICROSECONDS
from fastvideo.simulation.checker import Checker
from fastvideo.simulation.leader import Entry
from fastvideo.simulation.witness import InvariantBroken
from fastvideo.simulation.world import World
from tests.unit.simulation.traces import SMALL, small

SCENARIO = small()
Entries = list[Entry]


@pytest.fixture(scope="module")
def history() -> Entries:
    entries: Entries = []
    world = World(SCENARIO, 1)
    world.listen(entries.append)
    world.run()
    return entries


def check(entries: Sequence[Entry]) -> None:
    checker = Checker(SCENARIO.models, SCENARIO.trace.policy)
    for entry in entries:
        checker.step(entry.event, entry.decisions, entry.now, entry.at_us, None)
    checker.finish()


def changed(entries: Entries, kind: type[Decision], change: Callable[..., list[Decision]]) -> None:
    """Put something else in the place of the third decision of a kind."""
    seen = 0
    for index, entry in enumerate(entries):
        for place, decision in enumerate(entry.decisions):
            seen += isinstance(decision, kind)
            if isinstance(decision, kind) and seen == 3:
                made = [*entry.decisions]
                made[place : place + 1] = change(decision)
                entries[index] = replace(entry, decisions=tuple(made))
                return
    raise AssertionError(f"no third {kind.__name__}")


def dispatched_twice(entries: Entries) -> None:
    changed(entries, DispatchBatch, lambda d: [d, replace(d, batch_id=f"{d.batch_id}-again")])


def batch_id_twice(entries: Entries) -> None:
    changed(entries, DispatchBatch, lambda d: [d, d])


def beyond_the_budget(entries: Entries) -> None:
    for index, entry in enumerate(entries):
        if isinstance(entry.event, WorkerAttached):
            entries[index] = replace(entry, event=replace(entry.event, compute_slots=0))


def placed_twice(entries: Entries) -> None:
    changed(entries, AssignLoop, lambda d: [d, d])


def never_placed_back(entries: Entries) -> None:
    changed(entries, ReleaseRequest, lambda d: [])


def completed_twice(entries: Entries) -> None:
    changed(entries, CompleteRequest, lambda d: [d, d])


def other_bits(entries: Entries) -> None:
    changed(entries, CompleteRequest, lambda d: [replace(d, latents_digest="00000000")])


def artifact_twice(entries: Entries) -> None:
    changed(entries, CompleteRequest, lambda d: [replace(d, artifact_ids=d.artifact_ids * 2)])


def results_that_do_not_count(entries: Entries) -> None:
    def more(d: CompleteRequest) -> list[Decision]:
        return [replace(d, metrics=replace(d.metrics, units=d.metrics.units + 1))]

    changed(entries, CompleteRequest, more)


def failed_without_cause(entries: Entries) -> None:
    def fail(d: CompleteRequest) -> list[Decision]:
        error = ErrorDetail(reason="SIMULATED")
        return [FailRequest(request_id=d.request_id, error=error, metrics=d.metrics)]

    changed(entries, CompleteRequest, fail)


def restarted_without_cause(entries: Entries) -> None:
    def restart(d: StartRequest) -> list[Decision]:
        return [RestartRequest(request_id=d.request_id, attempt=2, reason="")]

    changed(entries, StartRequest, restart)


def progress_falls(entries: Entries) -> None:
    changed(entries, ReportProgress, lambda d: [d, replace(d, fraction=d.fraction / 2)])


def granted_after_the_cancel(entries: Entries) -> None:
    for index, entry in enumerate(entries):
        if isinstance(entry.event, RequestSubmitted):
            target = entry.event.spec.request_id
            scope = CancelScope(kind=CancelScopeKind.REQUEST, target_id=target)
            cancel = replace(entry, event=CancelRequested(scope=scope), decisions=())
            entries.insert(index + 1, cancel)
            return


def starved(entries: Entries) -> None:
    """A loop that had to wait was ready an hour before."""
    for index, entry in enumerate(entries):
        prepared = isinstance(entry.event, LoopPrepared)
        if prepared and not any(isinstance(d, DispatchBatch) for d in entry.decisions):
            entries[index] = replace(entry, at_us=entry.at_us - 3_600 * MICROSECONDS)
            return


def never_ended(entries: Entries) -> None:
    del entries[-3:]


def result_twice(entries: Entries) -> None:
    """A report holds a step that counted before."""
    for index, entry in enumerate(entries):
        event = entry.event
        if isinstance(event, BatchExecuted) and event.results[0].step_range.start == 1:
            again = replace(
                event.results[0], step_range=replace(event.results[0].step_range, start=0)
            )
            entries[index] = replace(entry, event=replace(event, results=(again,)))
            return


CASES = [
    (dispatched_twice, "granted twice"),
    (batch_id_twice, "a batch id came twice"),
    (beyond_the_budget, "granted beyond the budget, compute_slots"),
    (placed_twice, "assigned twice"),
    (never_placed_back, "its place was not freed"),
    (completed_twice, "after the request's end"),
    (other_bits, "undisturbed it is"),
    (artifact_twice, "completed with artifacts"),
    (results_that_do_not_count, "results count"),
    (failed_without_cause, "nothing of it did"),
    (restarted_without_cause, "it lost nothing"),
    (progress_falls, "progress fell"),
    (granted_after_the_cancel, "after the cancel"),
    (starved, "waited"),
    (never_ended, "has not ended"),
    (result_twice, "two results count|which is at"),
]


def test_a_sound_history_passes(history: Entries) -> None:
    check(history)
    assert len(history) > 150


@pytest.mark.parametrize(("tamper", "said"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_a_history_that_is_not_sound_is_refused(
    history: Entries, tamper: Callable[[Entries], None], said: str
) -> None:
    entries = list(history)
    tamper(entries)
    with pytest.raises(InvariantBroken, match=said):
        check(entries)


# Few places, so that many wait; and a crowd that goes before the others.
CROWD = small(
    classes={
        "crowd": {**SMALL["classes"]["video"], "priority": 3},
        "others": {**SMALL["classes"]["video"], "priority": 1},
    },
    policy={
        "resident_requests_max": 2,
        "slo_classes": {"crowd": {"priority_min": 3}, "others": {"priority_min": 1}},
    },
)
KEEPING = {
    "crowd": SloClass(priority_min=3, reserved_places=1),
    "others": SloClass(priority_min=1),
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"slo_classes": KEEPING}, "1 are kept for higher classes"),
        ({"resident_requests_max": 3}, "has a place free for it"),
        ({"queue_wait_seconds_max": 0.1}, "was passed over again and again"),
    ],
)
def test_places_go_to_whom_the_policy_gives_them(change: Mapping[str, Any], said: str) -> None:
    """A history is held against another policy than the one that it was made by."""
    policy = CROWD.trace.policy
    checker = Checker(CROWD.models, replace(policy, **change))
    world = World(CROWD, 1)

    def check_entry(entry: Entry) -> None:
        checker.step(entry.event, entry.decisions, entry.now, entry.at_us, None)

    world.listen(check_entry)
    if not said:
        world.run()
        return
    with pytest.raises(InvariantBroken, match=said):
        world.run()


def test_a_leak_in_the_core_is_found_by_its_own_sum(history: Entries) -> None:
    checker = Checker(SCENARIO.models, SCENARIO.trace.policy)
    entry = history[0]
    with pytest.raises(InvariantBroken, match="a leak"):
        checker.step(
            entry.event, entry.decisions, entry.now, entry.at_us, lambda: {"compute_slots": 1}
        )
