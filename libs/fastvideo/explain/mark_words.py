"""What stands above the lanes of a picture: which moments are marked, and words that do not meet.

Words go into rows, each to the lowest one where they touch no others; where no row has room, the
line alone stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fastvideo.explain.headline import span
from fastvideo.explain.lanes import since
from fastvideo.explain.types import Explanation

# Marks that are drawn; the rest is plain from the lanes.
MARKED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "preempted": "preempted",
        "worker_lost": "worker lost",
        "restarted": "began again",
        "elected": "scheduler changed",
        "worker_detached": "stream broke",
        "worker_reattached": "worker back",
        "cancel_requested": "cancel asked",
    }
)
# Of these there are many and none is news: lines, and words at the first.
SAVED: Final = "snapshotted"

MARKS_MAX: Final = 24
ROWS_MAX: Final = 4
# Of the whole width: what one letter takes, the space between words of a row, and how near
# moments are that share their words.
LETTER_PART: Final = 0.0088
SPACE_PART: Final = 0.01
NEAR_PART: Final = 0.012


@dataclass(frozen=True, slots=True)
class MarkWords:
    """Words at a moment."""

    at_s: float
    text: str
    # Upwards, from 0.
    row: int
    # Left of the moment, since there is no room at its right.
    on_left: bool


def marked_moments(explanation: Explanation) -> list[float]:
    """Seconds since acceptance of what is drawn as a line, saving left out."""
    shown = [mark for mark in explanation.marks if mark.name in MARKED]
    return [since(mark.at, explanation) for mark in shown[:MARKS_MAX]]


def saved_moments(explanation: Explanation) -> list[float]:
    """Seconds since acceptance of each snapshot."""
    return [since(mark.at, explanation) for mark in explanation.marks if mark.name == SAVED]


def mark_words(explanation: Explanation) -> tuple[MarkWords, ...]:
    """The words of all lines, in the order of time; those of the snapshots last."""
    total = max(explanation.totals.total_seconds, 1e-3)
    groups: list[tuple[float, list[str]]] = []
    shown = [mark for mark in explanation.marks if mark.name in MARKED][:MARKS_MAX]
    for mark in shown:
        at_s = since(mark.at, explanation)
        if groups and at_s - groups[-1][0] < NEAR_PART * total:
            groups[-1][1].append(MARKED[mark.name])
        else:
            groups.append((at_s, [MARKED[mark.name]]))
    texts = [(at_s, f"{', '.join(dict.fromkeys(w))} at {span(at_s)}") for at_s, w in groups]
    saved = saved_moments(explanation)
    if saved:
        texts.append((saved[0], "saved" if len(saved) == 1 else f"saved, {len(saved)} times"))
    rows: list[list[tuple[float, float]]] = [[] for _ in range(ROWS_MAX)]
    laid_out = (_laid_out(at_s / total, at_s, text, rows) for at_s, text in texts)
    return tuple(words for words in laid_out if words is not None)


def _laid_out(
    place: float, at_s: float, text: str, rows: Sequence[list[tuple[float, float]]]
) -> MarkWords | None:
    wide = LETTER_PART * len(text) + SPACE_PART
    on_left = place + wide > 1.0 and place > wide
    taken = (place - wide, place) if on_left else (place, place + wide)
    for row, others in enumerate(rows):
        if all(taken[1] <= begin or end <= taken[0] for begin, end in others):
            others.append(taken)
            return MarkWords(at_s, text, row, on_left)
    return None
