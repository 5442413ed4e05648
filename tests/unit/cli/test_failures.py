"""A command that fails says why in one line."""

import json

import pytest

from fastvideo.cli.failures import EXIT_FAILED, EXIT_INTERRUPTED, report
from fastvideo.errors import Cancelled, InvalidField, NotFound, Unavailable
from fastvideo.model.documents import InvalidDocument


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_a_bad_field_is_named_with_what_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    error = InvalidField("sampling.width", 63, "a multiple of 16")
    assert report(error) == EXIT_FAILED
    assert told(capsys) == ["error: sampling.width is 63; allowed: a multiple of 16"]


def test_the_subject_is_added_when_the_message_lacks_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = NotFound("no such request\nat all", subject="req_1", attributes={"allowed": "ids"})
    assert report(error) == EXIT_FAILED
    assert told(capsys) == ["error: no such request at all (req_1) [allowed: ids]"]


def test_faults_of_a_file_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    error = InvalidDocument("model.yaml", {"a": "unknown field", "b": "missing"})
    assert report(error) == EXIT_FAILED
    assert told(capsys) == ["error: model.yaml: a: unknown field", "model.yaml: b: missing"]


def test_the_last_lines_of_a_part_that_failed_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    attributes = {"tail": "initdb: no such user\nended", "log": "/data/logs/initdb.log"}
    error = Unavailable("initdb did not start", subject="initdb", attributes=attributes)
    assert report(error) == EXIT_FAILED
    assert told(capsys) == [
        *("error: initdb did not start", "  initdb: no such user", "  ended"),
        "  log: /data/logs/initdb.log",
    ]


def test_cancelled_and_interrupted_exit_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(Cancelled("stopped")) == EXIT_INTERRUPTED
    assert report(KeyboardInterrupt()) == EXIT_INTERRUPTED
    assert told(capsys) == ["error: stopped", "interrupted"]


def test_a_fault_of_the_program_shows_its_stack_only_when_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report(ZeroDivisionError("oops")) == EXIT_FAILED
    [line] = told(capsys)
    assert line.startswith("error: ZeroDivisionError: oops")
    assert report(ZeroDivisionError("oops"), with_traceback=True) == EXIT_FAILED
    assert len(told(capsys)) > 1


@pytest.mark.parametrize(
    ("error", "reason", "subject"),
    [
        (InvalidField("sampling.width", 63, "a multiple of 16"), "INVALID_FIELD", "sampling.width"),
        (NotFound("no such request\nat all", subject="req_1"), "NOT_FOUND", "req_1"),
        (KeyboardInterrupt(), "INTERRUPTED", ""),
        (OSError("full"), "INTERNAL", ""),
    ],
)
def test_with_json_the_error_is_an_object_on_standard_output(
    capsys: pytest.CaptureFixture[str], error: BaseException, reason: str, subject: str
) -> None:
    report(error, as_json=True)
    captured = capsys.readouterr()
    told_as = json.loads(captured.out)["error"]
    assert (told_as["reason"], told_as["subject"]) == (reason, subject)
    assert set(told_as) == {"reason", "message", "subject", "attributes"}
    assert captured.out.count("\n") == 1
    assert captured.err
