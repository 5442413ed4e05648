"""Adapters come when a unit needs them and go when others need the room."""

import pytest
import torch

from fastvideo.cache.adapters import AdapterCache
from fastvideo.cache.keys import key_digest
from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import StepContext
from fastvideo.memory.pools import MemoryPools, MemoryTag, OutOfMemory
from fastvideo.model.caching import CacheClass, CacheKey, CacheOutcome
from fastvideo.scheduling.work import (
    CachePlan,
    LoopRef,
    PlacementHint,
    ResourceRequest,
    StepRange,
    UnitKind,
    WorkUnit,
)

ADAPTER_BYTES = 2 * 4 * 8 * 4


def key(name: str, version: str = "1") -> CacheKey:
    return CacheKey(
        model_id="m", component_id="transformer", adapter_versions={name: version}, precision="f32"
    )


def load(wanted: CacheKey) -> dict[str, torch.Tensor]:
    [version] = wanted.adapter_versions.values()
    return {name: torch.full((4, 8), float(version)) for name in ("down", "up")}


def context(*planned: CacheKey) -> StepContext:
    unit = WorkUnit(
        unit_id="u",
        loop=LoopRef(),
        kind=UnitKind.DIFFUSION_STEP,
        step_range=StepRange(),
        resources=ResourceRequest(),
        cache_plan=CachePlan(reads=tuple(key_digest(key) for key in planned)),
        placement_hint=PlacementHint(),
    )
    return StepContext(unit=unit)


@pytest.fixture
def pools() -> MemoryPools:
    return MemoryPools(dict.fromkeys(MemoryTag, 2 * ADAPTER_BYTES))


@pytest.fixture
def adapters(pools: MemoryPools) -> AdapterCache:
    return AdapterCache(pools, load)


def test_an_adapter_is_loaded_once_counted_as_weights_and_each_look_is_recorded(
    adapters: AdapterCache, pools: MemoryPools
) -> None:
    looks = context(key("style"))
    with adapters.use(key("style"), looks) as first, adapters.use(key("style"), looks) as second:
        assert first["up"] is second["up"]
    assert pools.in_use_bytes()[MemoryTag.WEIGHTS] == ADAPTER_BYTES
    assert [lookup.outcome for lookup in looks.lookups["u"]] == [
        CacheOutcome.MISS,
        CacheOutcome.HIT,
    ]
    assert looks.lookups["u"][0].cache_class is CacheClass.WEIGHTS_AND_ADAPTERS


def test_idle_adapters_make_room_for_another_and_for_a_model(
    adapters: AdapterCache, pools: MemoryPools
) -> None:
    for name in ("a", "b", "c"):
        looks = context(key(name))
        with adapters.use(key(name), looks):
            pass
    assert [lookup.outcome for lookup in looks.lookups["u"]] == [
        CacheOutcome.MISS,
        CacheOutcome.EVICT,
    ]
    assert looks.lookups["u"][1].key_digest == key_digest(key("a"))
    evicted = pools.resize(MemoryTag.WEIGHTS, "instance:other", 2 * ADAPTER_BYTES)
    assert len(evicted) == 2
    assert adapters.usage.entries == 0


def test_one_that_runs_is_not_evicted(adapters: AdapterCache, pools: MemoryPools) -> None:
    with adapters.use(key("style", "3"), context(key("style", "3"))) as tensors:
        with pytest.raises(OutOfMemory):
            pools.resize(MemoryTag.WEIGHTS, "instance:other", 2 * ADAPTER_BYTES)
        assert torch.equal(tensors["up"], torch.full((4, 8), 3.0))
        assert adapters.usage.entries == 1
    pools.resize(MemoryTag.WEIGHTS, "instance:other", 2 * ADAPTER_BYTES)


def test_another_version_is_another_adapter(adapters: AdapterCache) -> None:
    first, second = key("style", "1"), key("style", "2")
    with (
        adapters.use(first, context(first)) as old,
        adapters.use(second, context(second)) as new,
    ):
        assert not torch.equal(old["up"], new["up"])
    assert adapters.invalidate(lambda kept: kept.adapter_versions["style"] == "1") == 1
    assert adapters.usage.entries == 1


def test_one_that_was_not_planned_is_refused(adapters: AdapterCache) -> None:
    with (
        pytest.raises(ContractViolation, match="not planned to read"),
        adapters.use(key("style"), context(key("other"))),
    ):
        pass
