"""How many rows may share a forward and still each have the bits of a forward of its own.

Whether a row's bits depend on its neighbours is a matter of the processor, of the library's
kernels and of the shape, so it is measured on the machine that serves: a few random rows alone,
then together in batches of several sizes and in other places.
"""

from collections.abc import Callable
from typing import Final

import torch

ROWS_MAX: Final = 32
"""No forward has more rows."""

TOKENS_MAX: Final = 1024
"""No forward has more tokens, rows x tokens a row; beyond that, batching gains little.

It bounds the cost of the measurement too, whatever the shape."""

_DISTINCT_ROWS: Final = 4
_SIZES: Final = (2, 3, 5, 8, 16, 32)
_SEED: Final = 20241

Rows = tuple[torch.Tensor, ...]
"""The arguments of a forward, each with the rows first."""


def rows_limit(tokens: int) -> int:
    """The most rows that are worth a common forward, at so many tokens a row."""
    return max(1, min(ROWS_MAX, TOKENS_MAX // max(1, tokens)))


def exact_rows_max(
    forward: Callable[[Rows], torch.Tensor],
    make_rows: Callable[[int, torch.Generator], Rows],
    limit: int,
) -> int:
    """The most rows, up to `limit`, at which every tried batch equals single forwards.

    1 when two rows already differ. `make_rows(n, generator)` gives n random rows.
    """
    if limit < 2:
        return 1
    generator = torch.Generator("cpu").manual_seed(_SEED)
    rows = make_rows(_DISTINCT_ROWS, generator)
    alone = torch.cat([forward(_take(rows, [index])) for index in range(_DISTINCT_ROWS)])
    exact = 1
    for size in sorted({min(size, limit) for size in _SIZES}):
        # Each size starts elsewhere, so that a row is tried in several places.
        places = [(place + size) % _DISTINCT_ROWS for place in range(size)]
        together = forward(_take(rows, places))
        if not torch.equal(together, alone[places]):
            break
        exact = size
    return exact


def _take(rows: Rows, places: list[int]) -> Rows:
    return tuple(part[places] for part in rows)
