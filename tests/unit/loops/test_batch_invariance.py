import pytest
import torch

from fastvideo.loops.batch_invariance import Rows, exact_rows_max, rows_limit


def make_rows(count: int, generator: torch.Generator) -> Rows:
    return (torch.randn((count, 4), generator=generator),)


def test_an_exact_forward_may_hold_as_many_rows_as_the_limit() -> None:
    assert exact_rows_max(lambda rows: rows[0] * 2, make_rows, 32) == 32
    assert exact_rows_max(lambda rows: rows[0] * 2, make_rows, 6) == 6


@pytest.mark.parametrize(("breaks_at", "exact"), [(2, 1), (3, 2), (6, 5), (13, 8), (33, 32)])
def test_the_last_size_before_the_first_difference_counts(breaks_at: int, exact: int) -> None:
    def forward(rows: Rows) -> torch.Tensor:
        return rows[0] + (1e-6 if len(rows[0]) >= breaks_at else 0.0)

    assert exact_rows_max(forward, make_rows, 32) == exact


def test_a_forward_that_looks_at_the_place_of_a_row_is_not_exact() -> None:
    def forward(rows: Rows) -> torch.Tensor:
        return rows[0] + torch.arange(len(rows[0])).view(-1, 1) * 1e-6

    assert exact_rows_max(forward, make_rows, 32) == 1


def test_a_limit_of_one_runs_nothing() -> None:
    def forward(rows: Rows) -> torch.Tensor:
        raise AssertionError

    assert exact_rows_max(forward, make_rows, 1) == 1


@pytest.mark.parametrize(
    ("tokens", "limit"), [(1, 32), (27, 32), (108, 9), (400, 2), (513, 1), (9999, 1)]
)
def test_large_rows_do_not_share_a_forward(tokens: int, limit: int) -> None:
    assert rows_limit(tokens) == limit
