"""Words above a picture's lanes can be read, whatever a request met."""

from dataclasses import replace
from datetime import timedelta
from itertools import combinations

from fastvideo.explain.mark_words import (
    LETTER_PART,
    MarkWords,
    mark_words,
    marked_moments,
    saved_moments,
)
from fastvideo.explain.types import ExplainedMark, Explanation
from tests.unit.explain.tale import Tale

TOTAL_S = 60.0


def met(*marks: tuple[float, str]) -> Explanation:
    """A request of a minute that met these."""
    told = Tale().explained(now=TOTAL_S)
    at = [
        ExplainedMark(at=told.accepted_at + timedelta(seconds=at_s), name=name)
        for at_s, name in marks
    ]
    return replace(told, marks=tuple(at), totals=replace(told.totals, total_seconds=TOTAL_S))


def taken(words: MarkWords) -> tuple[float, float]:
    wide = TOTAL_S * LETTER_PART * len(words.text)
    return (words.at_s - wide, words.at_s) if words.on_left else (words.at_s, words.at_s + wide)


def test_words_of_one_moment_stand_together_and_no_words_meet() -> None:
    saves = [(5.0 + 4 * n, "snapshotted") for n in range(14)]
    losses = [(6.0, "worker_detached"), (6.3, "worker_lost"), (6.3, "restarted")]
    late = [(56.0, "elected"), (58.5, "worker_reattached")]
    explanation = met(*saves, *losses, *late)
    found = mark_words(explanation)
    assert [words.text for words in found] == [
        "stream broke, worker lost, began again at 6.00 s",
        "scheduler changed at 56.0 s",
        "worker back at 58.5 s",
        "saved, 14 times",
    ]
    for one, other in combinations(found, 2):
        apart = taken(one)[1] <= taken(other)[0] or taken(other)[1] <= taken(one)[0]
        assert apart or one.row != other.row
    assert all(begin >= 0 and end <= TOTAL_S for begin, end in map(taken, found))
    # However often it was saved, what else it met is drawn.
    assert marked_moments(explanation) == [6.0, 6.3, 6.3, 56.0, 58.5]
    assert len(saved_moments(explanation)) == 14


def test_where_there_is_no_room_for_words_the_line_alone_stays() -> None:
    explanation = met(*((10.0 + n, "elected") for n in range(20)))
    assert len(mark_words(explanation)) < 20
    assert len(marked_moments(explanation)) == 20
