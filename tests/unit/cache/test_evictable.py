"""Entries give way to whoever is short of memory, oldest first, but never one that is in use."""

import pytest

from fastvideo.cache.evictable import EvictableStore
from fastvideo.cache.keys import key_digest
from fastvideo.memory.pools import MemoryPools, MemoryTag, OutOfMemory
from fastvideo.model.caching import CacheClass, CacheKey, CacheOutcome


def key(name: str) -> CacheKey:
    return CacheKey(model_id="m", input_hashes={"text": name})


@pytest.fixture
def pools() -> MemoryPools:
    return MemoryPools(dict.fromkeys(MemoryTag, 100))


@pytest.fixture
def store(pools: MemoryPools) -> EvictableStore:
    store = EvictableStore(CacheClass.VAE_TILE, 100)
    store.join(pools, MemoryTag.CACHES)
    return store


def names(store: EvictableStore, *candidates: str) -> list[str]:
    return [name for name in candidates if store.find(key_digest(key(name)))]


def test_every_entry_is_counted_by_itself_and_goes_back_with_it(
    store: EvictableStore, pools: MemoryPools
) -> None:
    store.add(key("a"), "A", 30)
    store.add(key("b"), "B", 30)
    assert pools.in_use_bytes()[MemoryTag.CACHES] == 60
    assert len(pools.owners(MemoryTag.CACHES)) == 2
    store.add(key("a"), "A2", 10)
    assert pools.in_use_bytes()[MemoryTag.CACHES] == store.usage.used_bytes == 40
    assert store.invalidate(lambda _: True) == 2
    assert pools.in_use_bytes()[MemoryTag.CACHES] == 0


def test_work_that_is_short_of_memory_gets_the_oldest_entries(
    store: EvictableStore, pools: MemoryPools
) -> None:
    for name in "abc":
        store.add(key(name), name, 30)
    store.find(key_digest(key("a")))
    evicted = pools.resize(MemoryTag.ACTIVATIONS, "loop", 130)
    assert [(lookup.key_digest, lookup.size_bytes) for lookup in evicted] == [
        (key_digest(key("b")), 30)
    ]
    assert {lookup.outcome for lookup in evicted} == {CacheOutcome.EVICT}
    assert {lookup.cache_class for lookup in evicted} == {CacheClass.VAE_TILE}
    assert names(store, "a", "b", "c") == ["a", "c"]


def test_what_is_in_use_stays_however_short_memory_is(
    store: EvictableStore, pools: MemoryPools
) -> None:
    for name in "ab":
        store.add(key(name), name, 50)
    with store.pinned([key_digest(key("a"))]):
        with pytest.raises(OutOfMemory):
            pools.resize(MemoryTag.ACTIVATIONS, "loop", 200)
        pools.resize(MemoryTag.ACTIVATIONS, "loop", 150)
        assert names(store, "a", "b") == ["a"]
        with pytest.raises(OutOfMemory):
            store.add(key("c"), "C", 51)
    assert names(store, "a") == ["a"]
    pools.resize(MemoryTag.ACTIVATIONS, "loop", 200)
    assert names(store, "a") == []


def test_another_cache_of_the_pool_makes_room(store: EvictableStore, pools: MemoryPools) -> None:
    other = EvictableStore(CacheClass.BLOCK_RESIDUAL, 100)
    other.join(pools, MemoryTag.CACHES)
    store.add(key("a"), "A", 60)
    evicted = other.add(key("b"), "B", 60)
    assert [lookup.cache_class for lookup in evicted] == [CacheClass.VAE_TILE]
    assert pools.in_use_bytes()[MemoryTag.CACHES] == 60


def test_what_work_has_borrowed_is_not_there_for_entries(
    store: EvictableStore, pools: MemoryPools
) -> None:
    pools.resize(MemoryTag.ACTIVATIONS, "loop", 180)
    store.add(key("a"), "A", 20)
    # Within its own budget, but the pool has lent the rest.
    with pytest.raises(OutOfMemory):
        store.add(key("b"), "B", 70)
    assert pools.in_use_bytes()[MemoryTag.ACTIVATIONS] == 180
    assert store.usage.used_bytes == pools.in_use_bytes()[MemoryTag.CACHES]
