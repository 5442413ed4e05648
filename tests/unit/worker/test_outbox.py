"""Reports are numbered, kept until they are acknowledged, and bounded."""

import pytest

from fastvideo.errors import ResourceExhausted
from fastvideo.scheduling.events import WorkerDraining
from fastvideo_worker.outbox import Outbox


def report() -> WorkerDraining:
    return WorkerDraining(worker_id="w1")


def filled(count: int, **options: int) -> Outbox:
    outbox = Outbox(**options)
    for _ in range(count):
        outbox.add(report())
    return outbox


def test_numbers_rise_by_one() -> None:
    outbox = Outbox()
    assert [outbox.add(report()).report for _ in range(3)] == [1, 2, 3]
    assert outbox.last == 3


def test_what_is_not_acknowledged_is_sent_again() -> None:
    outbox = filled(5)
    outbox.acknowledge(2)
    assert [event.report for event in outbox.after(2)] == [3, 4, 5]
    assert [event.report for event in outbox.after(4)] == [5]
    assert outbox.after(5) == ()


def test_nobody_goes_on_who_needs_what_was_dropped_or_never_made() -> None:
    outbox = filled(5)
    outbox.acknowledge(3)
    assert [number for number in range(8) if outbox.has_all_after(number)] == [3, 4, 5]
    outbox.acknowledge(5)
    assert [number for number in range(8) if outbox.has_all_after(number)] == [5]
    outbox.clear()
    assert outbox.has_all_after(5)
    assert outbox.add(report()).report == 6


def test_it_is_bounded() -> None:
    outbox = filled(3, reports_max=3)
    with pytest.raises(ResourceExhausted):
        outbox.add(report())
    outbox.acknowledge(1)
    assert outbox.add(report()).report == 4
