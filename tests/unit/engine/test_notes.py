"""The note book is bounded, and loses what is worth least."""

from fastvideo.engine.notes import NoteBook
from fastvideo.scheduling.traces import (
    ComponentsTraced,
    MemoryReported,
    NonFiniteFound,
    TraceNote,
)


def book(notes_max: int, *notes: TraceNote) -> NoteBook:
    made = NoteBook(notes_max)
    made.add(*notes)
    return made


def test_what_is_noted_is_taken_once_in_order() -> None:
    notes = [MemoryReported(worker_id="w1", in_use_bytes=n) for n in range(3)]
    kept = book(10, *notes)
    assert kept.take(2) == tuple(notes[:2])
    assert kept.take(2) == tuple(notes[2:])
    assert kept.take(2) == ()


def test_the_oldest_of_least_worth_goes_first_and_is_counted() -> None:
    found = NonFiniteFound(request_id="r1")
    traces = [ComponentsTraced(request_id=f"r{n}") for n in range(3)]
    kept = book(2, found, *traces)
    assert (len(kept), kept.dropped) == (2, 2)
    assert kept.take(10) == (found, traces[2])


def test_what_is_worth_most_leaves_first() -> None:
    memory, found = MemoryReported(worker_id="w1"), NonFiniteFound(request_id="r1")
    assert book(10, memory, found).take(1) == (found,)
