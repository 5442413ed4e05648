"""What a replay's process ended with keeps its kind on the way to whoever asked."""

import json
from dataclasses import asdict

import pytest

from fastvideo.errors import CorruptLog, FailedPrecondition, FastVideoError, InvalidField, NotFound
from fastvideo.replay.process import _error_of
from fastvideo.requests.failures import error_detail


@pytest.mark.parametrize(
    "error",
    [
        FailedPrecondition("no behaviour was recorded", reason="NO_BEHAVIOR", subject="req_1"),
        NotFound("gone", reason="INPUT_GONE"),
        InvalidField("sample", 2, "0 to 1", reason="TOO_MUCH"),
        CorruptLog("event evt_1", reason="ARCHIVE", subject="evt_1"),
    ],
)
def test_the_kind_and_the_reason_come_back(error: FastVideoError) -> None:
    told = {"kind": type(error).__name__, "detail": asdict(error_detail(error))}
    found = _error_of(1, ["library noise", json.dumps(told)], stopping=False)
    assert type(found) is type(error)
    assert (found.message, found.subject) == (error.message, error.subject)


@pytest.mark.parametrize("line", ["", "[]", "{}", "null", "Traceback", '{"detail": 5, "kind": 1}'])
def test_a_process_that_says_nothing_has_died(line: str) -> None:
    found = _error_of(-9, [line], stopping=False)
    assert found.reason == "REPLAY_DIED"
