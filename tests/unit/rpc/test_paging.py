"""Page sizes and tokens."""

from datetime import UTC, datetime

import pytest

from fastvideo.errors import InvalidField
from fastvideo.rpc.paging import PagePosition, checked_page_size, page_position, page_token

PLACE = PagePosition(datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), "req_1")


def test_a_token_leads_back_to_its_place() -> None:
    assert page_position(page_token(PLACE, "a", "b"), "a", "b") == PLACE
    assert page_position("", "a") is None


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "eyI=",
        "WzEsMl0=",
        page_token(PLACE, "another"),
        page_token(PagePosition(PLACE.at, "req\0"), "a"),
        page_token(PagePosition(PLACE.at, "\ud800"), "a"),
        "W1tb" * 200,
        "W1tb" * 20_000,
    ],
)
def test_a_token_that_is_none_or_of_another_list_is_refused(token: str) -> None:
    with pytest.raises(InvalidField, match="page_token"):
        page_position(token, "a")


def test_sizes_are_bounded() -> None:
    assert [checked_page_size(size) for size in (0, 1, 200)] == [50, 1, 200]
    with pytest.raises(InvalidField, match="page_size"):
        checked_page_size(201)
