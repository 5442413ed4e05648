"""Notes leave their report, and fit into events."""

from fastvideo import wire
from fastvideo.model.caching import CacheClass, CacheLookup, CacheOutcome
from fastvideo.model.specs import ParallelPlan
from fastvideo.requests.behavior import BehaviorRecord
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.notes import fitting, requests_of, take_notes
from fastvideo.scheduling.traces import (
    BehaviorRecorded,
    CacheAccess,
    CacheAccessed,
    ComponentsTraced,
    ComponentTrace,
    MemoryReported,
    NonFiniteFound,
    TraceNote,
)
from fastvideo.scheduling.work import UnitKind


def accessed(count: int) -> CacheAccessed:
    lookup = CacheLookup(cache_class=CacheClass.TEXT_ENCODER_OUTPUT, outcome=CacheOutcome.HIT)
    return CacheAccessed(
        worker_id="w1",
        accesses=tuple(CacheAccess(request_id=f"r{n}", lookup=lookup) for n in range(count)),
    )


def size_of(note: TraceNote) -> int:
    return len(wire.encode(note))


def test_a_report_is_kept_without_its_notes() -> None:
    note = MemoryReported(worker_id="w1")
    report = BatchExecuted(batch_id="b1", kind=UnitKind.DIFFUSION_STEP, notes=(note,))
    bare, notes = take_notes(report)
    assert notes == (note,)
    assert bare == BatchExecuted(batch_id="b1", kind=UnitKind.DIFFUSION_STEP)
    assert take_notes(bare) == (bare, ())


def test_a_note_says_whose_it_is() -> None:
    record = BehaviorRecord(request_id="r1", parallel_plan=ParallelPlan())
    assert requests_of(BehaviorRecorded(record=record)) == ("r1",)
    assert requests_of(NonFiniteFound(request_id="r2")) == ("r2",)
    assert requests_of(MemoryReported(worker_id="w1")) == ()
    two = accessed(2)
    assert requests_of(CacheAccessed(accesses=two.accesses + two.accesses)) == ("r0", "r1")


def test_what_fits_stays_whole() -> None:
    note = accessed(3)
    assert fitting(note, size_of) == (note,)


def test_many_looks_become_several_events_and_none_is_lost() -> None:
    note = accessed(1_000)
    pieces = fitting(note, size_of, 2_000)
    assert len(pieces) > 4
    assert all(size_of(piece) <= 2_000 for piece in pieces)
    assert sum((piece.accesses for piece in pieces), ()) == note.accesses


def test_a_trace_keeps_the_components_that_fit_and_the_count_of_its_layers() -> None:
    components = tuple(ComponentTrace(component=f"c{n}", digest="d" * 64) for n in range(100))
    note = ComponentsTraced(request_id="r1", components=components, layers=100)
    [cut] = fitting(note, size_of, 2_000)
    assert cut.components == components[: len(cut.components)]
    assert cut.components
    assert cut.layers == 100


def test_of_another_note_that_does_not_fit_there_is_nothing() -> None:
    assert fitting(MemoryReported(worker_id="w" * 5_000), size_of, 2_000) == ()
