"""YAML that nobody would write is refused quickly, and typed."""

import time
from pathlib import Path

import pytest

from fastvideo.model.documents import InvalidDocument, parse, parse_document, read_document
from fastvideo.scheduling.policy import SchedulingPolicy


def bomb() -> str:
    """Nine lists of nine times the one before: 9^8 values in 330 characters."""
    lines = ["a: &a [x, x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        bomb(),
        "a: &a [*a]",
        "&a {x: *a}",
        "a: 2026-02-31",
        "a: !!int foo",
        "a: !!float foo",
        "a: !!timestamp foo",
        "a: !!python/object/apply:os.system [x]",
        "a: " + "9" * 5_000,
        "[" * 3_000,
        "a: " + "{b: " * 200,
        "a:\n" + "".join(" " * i + "- \n" for i in range(1, 100)),
        "x" * 1_000_001,
        "- 1",
        "\x00",
        "",
    ],
    ids=lambda text: text[:12] + str(len(text)),
)
def test_nonsense_is_refused_quickly(text: str) -> None:
    started = time.thread_time()
    with pytest.raises(InvalidDocument) as caught:
        parse_document(text, "given")
    assert caught.value.problems.keys() == {"yaml"}
    assert time.thread_time() - started < 2.0


def test_a_number_that_no_field_holds_is_told_by_file() -> None:
    with pytest.raises(InvalidDocument) as caught:
        parse(SchedulingPolicy, parse_document("a: 0x" + "f" * 5_000, "given"), "given")
    assert caught.value.source == "given"


def test_aliases_are_taken_as_they_are() -> None:
    text = "a: &a {b: 1}\nc: *a\nd: {<<: *a, e: '[[[['}"
    assert parse_document(text, "given") == {
        "a": {"b": 1},
        "c": {"b": 1},
        "d": {"b": 1, "e": "[[[["},
    }


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidDocument, match="UTF-8"):
        read_document(path)


@pytest.mark.parametrize(
    "text", ["a: 1\nb: 2\na: 3", "a:\n  b: 1\n  b: 2", "a: {b: 1, b: 1}", "a: [{b: 1, 'b': 1}]"]
)
def test_a_key_that_is_given_twice_is_refused(text: str) -> None:
    with pytest.raises(InvalidDocument, match="is given twice, in line"):
        parse_document(text, "given")


def test_a_key_that_there_is_not_is_answered_with_the_one_that_is_meant() -> None:
    with pytest.raises(InvalidDocument) as caught:
        parse(SchedulingPolicy, {"attempt_max": 3, "colour": "red"}, "given")
    assert caught.value.problems["attempt_max"] == "unknown field; did you mean attempts_max?"
    assert "attempts_max" in caught.value.problems["colour"]
