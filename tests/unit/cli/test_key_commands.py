"""When keys end, as the command line is told."""

from datetime import UTC, datetime

import pytest

from fastvideo.cli.key_commands import expiry
from fastvideo.errors import InvalidField

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_days_may_be_parts_of_one() -> None:
    assert expiry(NOW, 1.5) == datetime(2026, 1, 3, tzinfo=UTC)


@pytest.mark.parametrize("days", [1e8, 1e300, float("inf"), float("nan")])
def test_days_that_no_calendar_has_are_refused_by_name(days: float) -> None:
    with pytest.raises(InvalidField, match=r"--days is .*; allowed: days, up to the year 9999"):
        expiry(NOW, days)
