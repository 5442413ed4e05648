"""The notes of a worker on their way into the log: out of a report, and into events that fit.

A note that is too large is cut into several events, or loses what does not fit; how many were
cut short is counted by whoever writes them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, get_args

from fastvideo.scheduling.events import BatchExecuted, LoopPrepared
from fastvideo.scheduling.traces import (
    BehaviorRecorded,
    CacheAccessed,
    ComponentsTraced,
    NonFiniteFound,
    TraceNote,
    TransferRecorded,
)

NOTE_TYPES: Final = frozenset(note.__name__ for note in get_args(TraceNote))
"""The event types of notes: whoever folds the scheduler's stream passes over them."""

REPORT_NOTES_MAX: Final = 1_024
"""The most notes of one report; the others wait for the next one."""

NOTE_BYTES_MAX: Final = 1 << 20
"""The most that the event of one note takes."""

_ACCESSES_MAX: Final = 256


def take_notes(
    report: LoopPrepared | BatchExecuted,
) -> tuple[LoopPrepared | BatchExecuted, tuple[TraceNote, ...]]:
    """A report as the log keeps it, and what was noted with it."""
    if not report.notes:
        return report, ()
    return replace(report, notes=()), report.notes


def requests_of(note: TraceNote) -> tuple[str, ...]:
    """The requests that a note is about, each once; none for one about a machine or a model."""
    match note:
        case CacheAccessed():
            named = [access.request_id for access in note.accesses]
        case BehaviorRecorded():
            named = [note.record.request_id]
        case TransferRecorded() | ComponentsTraced() | NonFiniteFound():
            named = [note.request_id]
        case _:
            named = []
    return tuple(dict.fromkeys(filter(None, named)))


def one_access_note(notes: tuple[TraceNote, ...]) -> tuple[TraceNote, ...]:
    """The notes with the looks into a worker's caches as one, the first."""
    looks = [note for note in notes if isinstance(note, CacheAccessed)]
    if len(looks) < 2:
        return notes
    accesses = tuple(access for note in looks for access in note.accesses)
    merged = replace(looks[0], accesses=accesses)
    others = [note for note in notes if not isinstance(note, CacheAccessed)]
    return (merged, *others)


def fitting(
    note: TraceNote, size_of: Callable[[TraceNote], int], bytes_max: int = NOTE_BYTES_MAX
) -> tuple[TraceNote, ...]:
    """The note in pieces that fit, each no more than `bytes_max` as `size_of` has it.

    Looks into caches are spread over several notes. Components of a trace are dropped from its
    end, the count of its layers stays. Of any other note that does not fit there is nothing.
    """
    if isinstance(note, CacheAccessed) and len(note.accesses) > _ACCESSES_MAX:
        return tuple(piece for half in _halves(note) for piece in fitting(half, size_of, bytes_max))
    if size_of(note) <= bytes_max:
        return (note,)
    if isinstance(note, CacheAccessed) and len(note.accesses) > 1:
        return tuple(piece for half in _halves(note) for piece in fitting(half, size_of, bytes_max))
    if isinstance(note, ComponentsTraced) and note.components:
        kept = note.components[: len(note.components) // 2]
        return fitting(replace(note, components=kept), size_of, bytes_max)
    return ()


def _halves(note: CacheAccessed) -> tuple[CacheAccessed, CacheAccessed]:
    middle = len(note.accesses) // 2
    first, second = note.accesses[:middle], note.accesses[middle:]
    return replace(note, accesses=first), replace(note, accesses=second)
