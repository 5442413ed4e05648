"""What `fastvideo explain` prints."""

from dataclasses import replace

from fastvideo.cli.explanation_view import explanation_lines
from fastvideo.scheduling.events import QueueRequest
from tests.unit.explain.tale import (
    ME,
    OTHER,
    Tale,
    assign,
    at,
    complete,
    dispatch,
    executed,
    plan,
    prepared,
    ref,
    result,
)

MINE, THEIRS = ref(), ref(OTHER)


def told() -> Tale:
    """Two seconds in the queue, two shared steps, one of them behind another batch."""
    tale = Tale()
    tale.decides(0.0, QueueRequest(request_id=ME, position=4, reason="every worker is full"))
    tale.decides(2.0, assign())
    tale.hears(2.0, prepared(seconds=0.0))
    tale.decides(2.0, dispatch("1-1", (MINE, 0), (THEIRS, 0), predicted=0.8))
    both = [result(MINE, 0, 1.0, then=plan(MINE, 1)), result(THEIRS, 0, 1.0, then=plan(THEIRS, 1))]
    tale.hears(3.0, executed("1-1", *both, seconds=1.0))
    tale.decides(3.0, dispatch("1-2", (THEIRS, 1)))
    tale.hears(4.0, executed("1-2", result(THEIRS, 1, 1.0), seconds=1.0))
    tale.decides(4.0, dispatch("1-3", (MINE, 1)))
    tale.hears(5.0, executed("1-3", result(MINE, 1, 1.0, ends=True), seconds=1.0), complete())
    return tale


def test_the_first_lines_say_it_all() -> None:
    lines = explanation_lines(told().explained(), 120)
    assert lines[0].startswith(f"{ME}  running  m  2026-01-01 00:00:00 UTC")
    assert lines[1] == (
        "completed after 5.00 s: waited 3.00 s (2.00 s for a place (position 4); 1.00 s behind "
        "other batches of 1 request), ran 2.00 s on the device in 2 units, shared with 1 other "
        "request"
    )


def test_the_waterfall_shows_waiting_and_running_where_they_were() -> None:
    lines = explanation_lines(told().explained(), 120)
    (queue,) = [line for line in lines if line.startswith("place")]
    (denoise,) = [line for line in lines if line.startswith("denoise")]
    bars = [line.split()[1] for line in (queue, denoise)]
    fifth = len(bars[0]) // 5
    assert [bar[fifth // 2 :: fifth][:5] for bar in bars] == ["░░···", "··█░█"]
    assert "position 4: every worker is full" in queue
    assert "1000/1000/1000 ms" in denoise


def test_the_story_is_told_in_the_order_of_time() -> None:
    explanation = told().explained()
    (attempt,) = explanation.attempts
    later = replace(attempt, resumed_from="denoise 2/4", begun_at=at(4.5))
    lines = explanation_lines(replace(explanation, attempts=(later,)), 120)
    story = lines[next(n for n, line in enumerate(lines) if line.startswith("story")) :]
    moments = [float(line.split("+")[1].split()[0]) for line in story]
    assert moments == sorted(moments)
    assert any("+4.500  went on at denoise 2/4" in line for line in story)


def test_no_line_of_the_waterfall_is_wider_than_the_terminal() -> None:
    for width in (100, 120, 200):
        lines = explanation_lines(told().explained(), width)
        start = next(place for place, line in enumerate(lines) if line.startswith("place")) - 1
        assert max(map(len, lines[start : start + 3])) <= width


def test_the_longest_waits_name_what_was_in_the_way() -> None:
    text = "\n".join(explanation_lines(told().explained(), 120))
    assert "the request: position 4 in the queue, every worker is full" in text
    assert "denoise 2/4: other batches: 1 batch of diffusion_step for …_other" in text
    assert f"shared     {OTHER} (1 unit)" in text


def test_units_are_lines_when_asked_for() -> None:
    plain = explanation_lines(told().explained(), 120)
    with_units = explanation_lines(told().explained(), 120, with_units=True)
    assert len(with_units) == len(plain) + 4
    assert with_units[-2].startswith("denoise 1/4")
    assert "…_other" in with_units[-2]


def test_a_request_that_has_just_come_is_shown_too() -> None:
    lines = explanation_lines(Tale().explained(now=0.0), 80)
    assert lines[1].startswith("waits for messages, 0.0 ms after it was accepted")
