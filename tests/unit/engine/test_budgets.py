"""Budgets: the machine's memory or the container's, split over the pools."""

from pathlib import Path

import pytest

from fastvideo.engine.budgets import machine_bytes, pool_budgets, unit_budgets
from fastvideo.memory.pools import MemoryTag


@pytest.mark.parametrize(("text", "limited"), [("1000000\n", True), ("max\n", False)])
def test_a_container_s_limit_counts_when_there_is_one(
    tmp_path: Path, text: str, limited: bool
) -> None:
    file = tmp_path / "memory.max"
    file.write_text(text)
    physical = machine_bytes(tmp_path / "absent")
    assert machine_bytes(file) == (1_000_000 if limited else physical)


def test_the_pools_together_stay_below_the_whole_and_units_leave_room_for_states() -> None:
    budgets = pool_budgets(1_000)
    assert set(budgets) == set(MemoryTag)
    assert sum(budgets.values()) < 1_000
    units = unit_budgets(budgets)
    assert units["activations"] * 2 == budgets[MemoryTag.ACTIVATIONS]
    assert units["weights"] == budgets[MemoryTag.WEIGHTS]
