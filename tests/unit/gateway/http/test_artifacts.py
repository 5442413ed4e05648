"""Ranges of bytes as headers ask for them."""

import pytest

from fastvideo.errors import InvalidField
from fastvideo_gateway.http.artifacts import Span, span_of


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", None),
        ("bytes=-", None),
        ("bytes=0-1,5-6", None),
        ("lines=0-1", None),
        ("bytes=a-b", None),
        ("bytes=0-", Span(0, 100)),
        ("bytes=0-0", Span(0, 1)),
        ("bytes=10-19", Span(10, 20)),
        ("bytes=90-500", Span(90, 100)),
        ("bytes=-10", Span(90, 100)),
        ("bytes=-500", Span(0, 100)),
    ],
)
def test_a_range_is_within_the_file(header: str, expected: Span | None) -> None:
    assert span_of(header, 100) == expected


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=200-300", "bytes=-0", "bytes=5-4"])
def test_a_range_outside_of_the_file_is_refused(header: str) -> None:
    with pytest.raises(InvalidField, match="100 bytes"):
        span_of(header, 100)


def test_nothing_can_be_asked_of_an_empty_file() -> None:
    with pytest.raises(InvalidField):
        span_of("bytes=0-", 0)
