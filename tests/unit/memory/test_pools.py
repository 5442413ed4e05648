"""Tagged pools: growth is refused at the budget, and everything goes back."""

from dataclasses import dataclass, field

import pytest

from fastvideo.errors import ContractViolation
from fastvideo.memory.pools import MemoryPools, MemoryTag, OutOfMemory, RoleBudgets
from fastvideo.model.caching import CacheClass, CacheLookup, CacheOutcome

ACTIVATIONS, CACHES, STAGING, WEIGHTS = (
    MemoryTag.ACTIVATIONS,
    MemoryTag.CACHES,
    MemoryTag.STAGING,
    MemoryTag.WEIGHTS,
)


def _pools(budget_bytes: int = 100, roles: RoleBudgets | None = None) -> MemoryPools:
    return MemoryPools(dict.fromkeys(MemoryTag, budget_bytes), roles)


@dataclass
class Shelf:
    """Entries of 10 bytes each that can be given back, oldest first."""

    pools: MemoryPools
    tag: MemoryTag = CACHES
    entries: list[str] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    def put(self, *names: str) -> None:
        for name in names:
            self.pools.resize(self.tag, name, 10)
            self.entries.append(name)

    def reclaimable_bytes(self) -> int:
        return 10 * len(self.entries)

    def reclaim(self, size_bytes: int) -> tuple[CacheLookup, ...]:
        self.asked.append(size_bytes)
        evicted: list[CacheLookup] = []
        while self.entries and 10 * len(evicted) < size_bytes:
            name = self.entries.pop(0)
            self.pools.release(name)
            evicted.append(
                CacheLookup(
                    cache_class=CacheClass.VAE_TILE,
                    key_digest=name,
                    outcome=CacheOutcome.EVICT,
                    size_bytes=10,
                )
            )
        return tuple(evicted)


def _shelf(pools: MemoryPools, tag: MemoryTag = CACHES) -> Shelf:
    shelf = Shelf(pools, tag)
    pools.on_pressure(tag, shelf)
    return shelf


def test_what_an_owner_holds_is_set_not_added() -> None:
    pools = _pools()
    pools.resize(ACTIVATIONS, "loop", 60)
    pools.resize(ACTIVATIONS, "loop", 40)
    assert pools.in_use_bytes()[ACTIVATIONS] == 40
    assert pools.owners(ACTIVATIONS) == {"loop": 40}


def test_pools_are_apart() -> None:
    pools = _pools()
    pools.resize(ACTIVATIONS, "loop", 100)
    pools.resize(CACHES, "features", 100)
    assert pools.in_use_bytes()[WEIGHTS] == 0


def test_a_growth_past_the_budget_is_refused_by_name_and_changes_nothing() -> None:
    pools = _pools()
    pools.resize(WEIGHTS, "first", 70)
    with pytest.raises(OutOfMemory) as caught:
        pools.resize(WEIGHTS, "second", 31)
    assert caught.value.subject == "weights"
    assert caught.value.attributes == {
        "asked_bytes": "31",
        "free_bytes": "30",
        "tag": "weights",
        "owner": "second",
    }
    assert pools.in_use_bytes()[WEIGHTS] == 70


def test_an_owner_may_always_shrink() -> None:
    pools = _pools()
    pools.resize(STAGING, "artifact", 100)
    pools.resize(STAGING, "artifact", 0)
    assert pools.in_use_bytes()[STAGING] == 0


def test_release_gives_back_every_pool_and_is_idempotent() -> None:
    pools = _pools()
    pools.resize(ACTIVATIONS, "request", 10)
    pools.resize(STAGING, "request", 5)
    assert pools.release("request") == 15
    assert pools.release("request") == 0
    assert set(pools.in_use_bytes().values()) == {0}
    assert {usage.reserved for usage in pools.usage().values()} == {0}


def test_the_most_that_was_held_is_remembered() -> None:
    pools = _pools()
    pools.resize(STAGING, "a", 30)
    pools.resize(STAGING, "b", 20)
    pools.release("a")
    usage = pools.usage()[STAGING]
    assert (usage.in_use, usage.high_water, usage.budget) == (20, 50, 100)


def test_negative_sizes_and_missing_budgets_are_contract_violations() -> None:
    with pytest.raises(ContractViolation):
        _pools().resize(CACHES, "x", -1)
    with pytest.raises(ContractViolation, match="staging"):
        MemoryPools({WEIGHTS: 1, ACTIVATIONS: 1, CACHES: 1})


# -- roles ---------------------------------------------------------------------------------


def test_a_role_gets_its_share_of_a_pool_and_no_more() -> None:
    pools = _pools(roles={"decode": {ACTIVATIONS: 40}})
    pools.resize(ACTIVATIONS, "d1", 30, role="decode")
    with pytest.raises(OutOfMemory) as caught:
        pools.resize(ACTIVATIONS, "d2", 11, role="decode")
    assert caught.value.subject == "decode/activations"
    assert caught.value.attributes["role"] == "decode"
    assert caught.value.attributes["tag"] == "activations"
    assert caught.value.attributes["free_bytes"] == "10"
    # Others may have the rest, and so may the role in a pool that it does not share.
    pools.resize(ACTIVATIONS, "n1", 70, role="denoise")
    pools.resize(STAGING, "d3", 100, role="decode")
    assert pools.role_in_use_bytes("decode") == {
        WEIGHTS: 0,
        ACTIVATIONS: 30,
        CACHES: 0,
        STAGING: 100,
    }


def test_what_a_role_gives_back_it_may_have_again() -> None:
    pools = _pools(roles={"decode": {ACTIVATIONS: 40}})
    pools.resize(ACTIVATIONS, "d1", 40, role="decode")
    pools.resize(ACTIVATIONS, "d1", 5)
    pools.resize(ACTIVATIONS, "d2", 35, role="decode")
    pools.release("d1")
    pools.release("d2")
    assert pools.role_in_use_bytes("decode")[ACTIVATIONS] == 0


# -- pressure ------------------------------------------------------------------------------


def test_cached_entries_make_room_for_work_that_runs_and_only_as_many_as_it_takes() -> None:
    pools = _pools()
    shelf = _shelf(pools)
    shelf.put(*(f"e{index}" for index in range(10)))
    pools.resize(ACTIVATIONS, "loop", 100)
    evicted = pools.resize(ACTIVATIONS, "loop", 115)
    assert [lookup.key_digest for lookup in evicted] == ["e0", "e1"]
    assert shelf.asked == [15]
    assert pools.in_use_bytes() == {WEIGHTS: 0, ACTIVATIONS: 115, CACHES: 80, STAGING: 0}


def test_running_work_never_makes_room_for_caches() -> None:
    pools = _pools()
    pools.resize(ACTIVATIONS, "loop", 150)
    pools.resize(CACHES, "entry", 50)
    with pytest.raises(OutOfMemory) as caught:
        pools.resize(CACHES, "another", 1)
    assert caught.value.subject == "caches"
    assert pools.in_use_bytes()[ACTIVATIONS] == 150


def test_two_pools_borrow_the_same_bytes_only_once() -> None:
    pools = _pools()
    pools.resize(ACTIVATIONS, "loop", 160)
    pools.resize(STAGING, "artifact", 140)
    for tag in (ACTIVATIONS, STAGING, CACHES):
        with pytest.raises(OutOfMemory):
            pools.resize(tag, "more", 1)
    pools.resize(ACTIVATIONS, "loop", 100)
    pools.resize(CACHES, "entry", 60)


def test_weights_are_made_room_for_in_their_own_pool_alone() -> None:
    pools = _pools()
    entries, adapters = _shelf(pools), _shelf(pools, WEIGHTS)
    entries.put("entry")
    adapters.put("adapter")
    pools.resize(WEIGHTS, "model", 95)
    assert (entries.entries, adapters.entries) == (["entry"], [])
    with pytest.raises(OutOfMemory):
        pools.resize(WEIGHTS, "other", 10)
    assert entries.entries == ["entry"]


def test_nothing_is_evicted_in_vain() -> None:
    pools = _pools()
    shelf = _shelf(pools)
    shelf.put("a", "b")
    with pytest.raises(OutOfMemory):
        pools.resize(ACTIVATIONS, "loop", 201)
    assert shelf.entries == ["a", "b"]
    pools.resize(ACTIVATIONS, "loop", 200)
    assert shelf.entries == []


# -- claims --------------------------------------------------------------------------------


def test_owners_of_a_scope_live_within_its_claim() -> None:
    pools = _pools()
    pools.claim(ACTIVATIONS, "request", 80)
    pools.resize(CACHES, "entry", 100)
    with pytest.raises(OutOfMemory):
        pools.resize(ACTIVATIONS, "other", 21)
    pools.resize(ACTIVATIONS, "loop", 50, scope="request")
    pools.resize(ACTIVATIONS, "value", 30, scope="request")
    assert pools.usage()[ACTIVATIONS].reserved == 80
    # Beyond the claim it asks like everybody else.
    pools.resize(ACTIVATIONS, "value", 50, scope="request")
    with pytest.raises(OutOfMemory):
        pools.resize(ACTIVATIONS, "value", 51, scope="request")
    assert pools.usage()[ACTIVATIONS].reserved == 100
    pools.release("loop")
    assert pools.unclaim(ACTIVATIONS, "request") == 100
    assert pools.usage()[ACTIVATIONS].reserved == 50
    pools.release("value")
    assert pools.usage()[ACTIVATIONS].reserved == 0


def test_a_claim_that_does_not_fit_is_not_made_and_cached_entries_make_room_for_one() -> None:
    pools = _pools()
    shelf = _shelf(pools)
    shelf.put(*(f"e{index}" for index in range(10)))
    evicted = pools.claim(ACTIVATIONS, "first", 120)
    assert len(evicted) == 2
    with pytest.raises(OutOfMemory) as caught:
        pools.claim(ACTIVATIONS, "second", 81)
    assert caught.value.attributes["owner"] == "second"
    assert pools.usage()[ACTIVATIONS].reserved == 120
    assert pools.unclaim(ACTIVATIONS, "second") == 0
