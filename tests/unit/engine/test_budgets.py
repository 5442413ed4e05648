"""Budgets: the machine's memory or the container's, split over the pools."""

from pathlib import Path

import pytest

from fastvideo.engine.budgets import machine_bytes, pool_budgets, role_budgets, unit_budgets
from fastvideo.errors import InvalidField
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


def test_a_role_s_share_is_of_its_pool_and_a_unit_of_any_role_must_fit_its_share() -> None:
    budgets = dict.fromkeys(MemoryTag, 1_000)
    roles = role_budgets({"decode/activations": 0.5, "write/staging": 0.25}, budgets)
    assert roles == {"decode": {MemoryTag.ACTIVATIONS: 500}, "write": {MemoryTag.STAGING: 250}}
    units = unit_budgets(budgets, roles)
    assert (units["activations"], units["staging"], units["caches"]) == (250, 250, 1_000)


@pytest.mark.parametrize(
    ("name", "share"),
    [("decode", 0.5), ("decode/attic", 0.5), ("decode/weights", 0.0), ("decode/weights", 1.5)],
)
def test_a_share_that_cannot_be_is_refused_by_name(name: str, share: float) -> None:
    with pytest.raises(InvalidField, match=name):
        role_budgets({name: share}, dict.fromkeys(MemoryTag, 1_000))
