from dataclasses import dataclass

import pytest

from fastvideo.cache.features import TextFeatureCache
from fastvideo.cache.keys import key_digest
from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import StepContext
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


@dataclass(frozen=True)
class Value:
    nbytes: int


def key(name: str) -> CacheKey:
    return CacheKey(model_id="m", input_hashes={"text": name})


def unit(unit_id: str, *names: str) -> WorkUnit:
    digests = tuple(key_digest(key(name)) for name in names)
    return WorkUnit(
        unit_id=unit_id,
        loop=LoopRef(),
        kind=UnitKind.ENCODER_CHUNK,
        step_range=StepRange(),
        resources=ResourceRequest(),
        cache_plan=CachePlan(reads=digests, writes=digests),
        placement_hint=PlacementHint(),
    )


def outcomes(context: StepContext, unit_id: str) -> list[CacheOutcome]:
    return [lookup.outcome for lookup in context.lookups.get(unit_id, [])]


@pytest.mark.row("CCH-12")
def test_a_kept_value_is_found_by_an_equal_key_and_each_look_is_recorded() -> None:
    cache, context = TextFeatureCache(100), StepContext()
    view, value = cache.open(context), Value(10)
    context.unit = unit("u1", "a")
    assert view.get(key("a")) is None
    view.put(key("a"), value)
    context.unit = unit("u2", "a")
    assert view.get(key("a")) is value
    assert outcomes(context, "u1") == [CacheOutcome.MISS]
    assert outcomes(context, "u2") == [CacheOutcome.HIT]
    [hit] = context.lookups["u2"]
    assert hit.cache_class is CacheClass.TEXT_ENCODER_OUTPUT
    assert hit.key_digest == key_digest(key("a"))
    assert hit.size_bytes == 10


@pytest.mark.row("CCH-12")
def test_the_least_recently_used_goes_first_when_the_budget_is_full() -> None:
    cache, context = TextFeatureCache(25), StepContext()
    view = cache.open(context)
    context.unit = unit("u", "a", "b", "c")
    view.put(key("a"), Value(10))
    view.put(key("b"), Value(10))
    view.get(key("a"))
    view.put(key("c"), Value(10))
    assert [lookup.outcome for lookup in context.lookups["u"]] == [
        CacheOutcome.HIT,
        CacheOutcome.EVICT,
    ]
    assert context.lookups["u"][1].key_digest == key_digest(key("b"))
    assert cache.find(key_digest(key("b"))) is None
    assert cache.usage.used_bytes == cache.size_bytes == 20
    assert cache.usage.entries == 2


def test_a_value_larger_than_the_budget_is_not_kept_and_evicts_nothing() -> None:
    cache = TextFeatureCache(25)
    cache.keep(key("a"), Value(10))
    assert cache.keep(key("b"), Value(26)) == ()
    assert cache.find(key_digest(key("a"))) is not None
    assert cache.find(key_digest(key("b"))) is None


def test_a_key_that_is_kept_again_is_counted_once() -> None:
    cache = TextFeatureCache(25)
    cache.keep(key("a"), Value(10))
    cache.keep(key("a"), Value(12))
    assert (cache.usage.entries, cache.size_bytes) == (1, 12)


def test_stale_entries_are_dropped() -> None:
    cache = TextFeatureCache(100)
    cache.keep(CacheKey(weights_version="1"), Value(10))
    cache.keep(CacheKey(weights_version="2"), Value(10))
    assert cache.invalidate(lambda kept: kept.weights_version == "1") == 1
    assert cache.size_bytes == 10


@pytest.mark.parametrize("planned", [None, unit("u", "b")])
def test_a_look_that_was_not_planned_is_refused(planned: WorkUnit | None) -> None:
    context = StepContext(unit=planned)
    view = TextFeatureCache(100).open(context)
    with pytest.raises(ContractViolation, match="not planned to read"):
        view.get(key("a"))
    with pytest.raises(ContractViolation, match="not planned to write"):
        view.put(key("a"), Value(1))
    assert context.lookups == {}
