"""Tagged pools: growth is refused at the budget, and everything goes back."""

import pytest

from fastvideo.errors import ContractViolation
from fastvideo.memory.pools import MemoryPools, MemoryTag, OutOfMemory


def _pools(budget_bytes: int = 100) -> MemoryPools:
    return MemoryPools(dict.fromkeys(MemoryTag, budget_bytes))


def test_what_an_owner_holds_is_set_not_added() -> None:
    pools = _pools()
    pools.resize(MemoryTag.ACTIVATIONS, "loop", 60)
    pools.resize(MemoryTag.ACTIVATIONS, "loop", 40)
    assert pools.in_use_bytes()[MemoryTag.ACTIVATIONS] == 40


def test_pools_are_apart() -> None:
    pools = _pools()
    pools.resize(MemoryTag.ACTIVATIONS, "loop", 100)
    pools.resize(MemoryTag.CACHES, "features", 100)
    assert pools.in_use_bytes()[MemoryTag.WEIGHTS] == 0


def test_a_growth_past_the_budget_is_refused_by_name_and_changes_nothing() -> None:
    pools = _pools()
    pools.resize(MemoryTag.WEIGHTS, "first", 70)
    with pytest.raises(OutOfMemory) as caught:
        pools.resize(MemoryTag.WEIGHTS, "second", 31)
    assert caught.value.subject == "weights"
    assert caught.value.attributes == {
        "asked_bytes": "31",
        "free_bytes": "30",
        "tag": "weights",
        "owner": "second",
    }
    assert pools.in_use_bytes()[MemoryTag.WEIGHTS] == 70


def test_an_owner_may_always_shrink() -> None:
    pools = _pools()
    pools.resize(MemoryTag.STAGING, "artifact", 100)
    pools.resize(MemoryTag.STAGING, "artifact", 0)
    assert pools.in_use_bytes()[MemoryTag.STAGING] == 0


def test_release_gives_back_every_pool_and_is_idempotent() -> None:
    pools = _pools()
    pools.resize(MemoryTag.ACTIVATIONS, "request", 10)
    pools.resize(MemoryTag.STAGING, "request", 5)
    assert pools.release("request") == 15
    assert pools.release("request") == 0
    assert set(pools.in_use_bytes().values()) == {0}


def test_negative_sizes_and_missing_budgets_are_contract_violations() -> None:
    with pytest.raises(ContractViolation):
        _pools().resize(MemoryTag.CACHES, "x", -1)
    with pytest.raises(ContractViolation, match="staging"):
        MemoryPools({MemoryTag.WEIGHTS: 1, MemoryTag.ACTIVATIONS: 1, MemoryTag.CACHES: 1})
