"""Worlds in which everything goes wrong: whatever happens, all invariants hold.

The fast suite runs one world of each kind; the slow one, which CI runs too, more than two
hundred. Many more: `fastvideo simulate tests/simulation/worlds/moves.yaml --worlds 1000`.
"""

import os
from pathlib import Path

import pytest

from fastvideo.simulation.running import run_worlds

WORLDS = sorted((Path(__file__).parent / "worlds").glob("*.yaml"))
# Seeds of each world in the fast and in the slow suite; they do not overlap.
FAST, SLOW = range(1), range(100, 130)
REQUESTS_MIN = 1_000


def check(path: Path, seeds: range, processes: int) -> None:
    """Run the worlds; each must be about many requests."""
    broken = []
    for outcome in run_worlds(path, (), seeds, processes):
        if outcome.figures is None:
            broken.append(f"{outcome.broken}\nagain: {outcome.again}")
        else:
            assert outcome.figures.requests >= REQUESTS_MIN
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("path", WORLDS, ids=lambda path: path.stem)
def test_all_invariants_hold(path: Path) -> None:
    check(path, FAST, processes=1)


def test_there_are_two_hundred_worlds() -> None:
    assert len(WORLDS) * len(SLOW) >= 200


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", WORLDS, ids=lambda path: path.stem)
def test_all_invariants_hold_in_many_worlds(path: Path) -> None:
    check(path, SLOW, processes=min(2, os.cpu_count() or 1))
