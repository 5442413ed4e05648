"""Requests come as the trace says, and the same way for the same seed."""

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fastvideo.model.documents import InvalidDocument, parse
from fastvideo.requests.types import RequestState, RequestStatus
from fastvideo.simulation.agenda import MICROSECONDS
from fastvideo.simulation.arrivals import START, Arrival, arrivals
from fastvideo.simulation.reading import scenario
from fastvideo.simulation.recorded import read_recording, recorded_lines
from fastvideo.simulation.trace import Trace
from tests.unit.simulation.traces import SMALL, small


def coming(
    *kinds: dict[str, Any], duration_s: float = 100.0, seed: int = 1, **given: Any
) -> list[Arrival]:
    one = {**SMALL["classes"]["video"], "arrivals": list(kinds), **given}
    scenario = small(duration_s=duration_s, classes={"video": one})
    return list(arrivals(scenario.trace, scenario.models, {}, seed))


def seconds(found: list[Arrival]) -> list[float]:
    return [arrival.at_us / MICROSECONDS for arrival in found]


def test_poisson_arrivals_have_their_rate() -> None:
    moments = seconds(coming({"kind": "poisson", "per_s": 20}))
    assert moments == sorted(moments)
    assert 1_850 < len(moments) < 2_150


def test_bursts_come_together() -> None:
    moments = seconds(coming({"kind": "bursts", "every_s": 10, "size": 7, "spread_s": 0.5}))
    assert len(moments) == 70
    first = moments[:7]
    assert first[-1] - first[0] <= 0.5
    assert moments[7] - first[0] > 9


def test_a_day_has_a_busy_middle() -> None:
    kind = {"kind": "daily", "per_s_low": 1, "per_s_high": 20, "period_s": 100}
    moments = seconds(coming(kind))
    middle = sum(40 <= moment < 60 for moment in moments)
    night = sum(moment < 10 or moment >= 90 for moment in moments)
    assert middle > 5 * night > 0


def test_at_once_is_at_once() -> None:
    moments = seconds(coming({"kind": "at_once", "count": 64, "at_s": 0.5}))
    assert moments == [0.5] * 64


def test_a_seed_fixes_everything_and_another_changes_it() -> None:
    kind = {"kind": "poisson", "per_s": 20}
    given: dict[str, Any] = {"cancelled": 0.5, "tenants": ["a", "b"], "steps": [1, 2, 3]}
    assert coming(kind, **given) == coming(kind, **given)
    assert coming(kind, **given) != coming(kind, seed=2, **given)


def test_a_class_does_not_change_another() -> None:
    video = SMALL["classes"]["video"]
    alone = small()
    both = small(classes={"video": video, "more": {**video, "tenants": ["m"]}})
    first = list(arrivals(alone.trace, alone.models, {}, 3))
    second = [a for a in arrivals(both.trace, both.models, {}, 3) if a.class_name == "video"]
    assert first == second


def test_requests_have_what_the_class_says() -> None:
    found = coming(
        {"kind": "poisson", "per_s": 20},
        tenants=["a", "b"],
        steps=[4, 9],
        shapes=["64x48x13"],
        guidance_scales=[1.0],
        priority=2,
        deadline_s=5.0,
        session_size=3,
        cancelled=0.25,
        cancelled_after_s=[1.0, 2.0],
    )
    specs = [arrival.spec for arrival in found]
    assert {spec.tenant_id for spec in specs} == {"a", "b"}
    assert {spec.sampling.steps for spec in specs} == {4, 9}
    assert {(s.sampling.width, s.sampling.height, s.sampling.num_frames) for s in specs} == {
        (64, 48, 13)
    }
    assert max(Counter(spec.session_id for spec in specs).values()) == 3
    assert all(spec.priority == 2 and spec.deadline is not None for spec in specs)
    cancels = [a.cancel_at_us - a.at_us for a in found if a.cancel_at_us is not None]
    assert 0.2 < len(cancels) / len(found) < 0.3
    assert all(MICROSECONDS <= later <= 2 * MICROSECONDS for later in cancels)


LINE = {"width": 64, "height": 64, "num_frames": 9, "steps": 7, "guidance_scale": 1.0}
RECORDING: list[dict[str, Any]] = [
    {**LINE, "at_s": 4.0},
    {**LINE, "at_s": 1.0, "steps": 3, "tenant_id": "t", "priority": 1, "deadline_s": 9.0},
]


def played(folder: Path, lines: list[dict[str, Any]]) -> list[Arrival]:
    """A recording of these lines, at twice its pace."""
    file = folder / "requests.jsonl"
    file.write_text("\n\n".join(json.dumps(line) for line in lines))
    one = {
        **SMALL["classes"]["video"],
        "arrivals": [{"kind": "recorded", "file": file.name, "speed": 2.0}],
    }
    trace = parse(Trace, {**SMALL, "classes": {"video": one}}, "small.yaml")
    recorded = scenario(trace, folder=folder)
    return list(arrivals(recorded.trace, recorded.models, recorded.recordings, 1))


def test_a_recording_is_played_as_it_was(tmp_path: Path) -> None:
    found = played(tmp_path, RECORDING)
    assert seconds(found) == [0.5, 2.0]
    first = found[0].spec
    assert (first.sampling.steps, first.tenant_id, first.priority) == (3, "t", 1)
    assert first.deadline is not None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1"),
        ("[1]", "is no JSON object"),
        ('{"at_s": 1}', "width"),
        ('{"at_s": 1, "colour": 2}', "colour"),
        (json.dumps({**LINE, "at_s": -1.0}), "line 1: at_s: is -1.0; at least 0"),
        (json.dumps({**LINE, "at_s": float("nan")}), "line 1: at_s: is nan; a finite number"),
        (json.dumps({**LINE, "at_s": 1.0, "width": 0}), "line 1: width: is 0; at least 1"),
    ],
)
def test_a_recording_that_is_none_is_refused_by_line(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text(line)
    with pytest.raises(InvalidDocument, match=said):
        read_recording(file)


def test_of_a_recording_of_several_models_a_class_plays_its_own(tmp_path: Path) -> None:
    names = ("video", "other", "", "video")
    lines = [{**LINE, "at_s": float(at), "model_id": name} for at, name in enumerate(names)]
    assert seconds(played(tmp_path, lines)) == [0.0, 1.0, 1.5]
    with pytest.raises(InvalidDocument, match="has requests of other; none of 'video'"):
        played(tmp_path, lines[1:2])


def test_a_cancelled_request_is_cancelled_again(tmp_path: Path) -> None:
    [arrival] = coming({"kind": "at_once", "count": 1})
    state = RequestState(
        spec=arrival.spec,
        status=RequestStatus.CANCELLED,
        accepted_at=START,
        ended_at=START + timedelta(seconds=0.25),
    )
    [again] = played(tmp_path, list(recorded_lines([state])))
    assert again.cancel_at_us == again.at_us + MICROSECONDS // 4


def test_what_was_recorded_reads_back(tmp_path: Path) -> None:
    states = [
        RequestState(
            spec=arrival.spec,
            status=RequestStatus.COMPLETED,
            accepted_at=START + timedelta(microseconds=arrival.at_us),
        )
        for arrival in coming({"kind": "poisson", "per_s": 1}, deadline_s=5.0, tenants=["t"])
    ]
    file = tmp_path / "requests.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in recorded_lines(reversed(states))))
    read = read_recording(file)
    assert len(read) == len(states) > 50
    assert read[0].at_s == 0.0
    for state, line in zip(states, read, strict=True):
        later = state.accepted_at - states[0].accepted_at
        assert line.at_s == pytest.approx(later.total_seconds(), abs=1e-6)
        assert (line.steps, line.tenant_id) == (state.spec.sampling.steps, "t")
        assert line.deadline_s == pytest.approx(5.0, abs=1e-5)
