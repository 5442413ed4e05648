"""One suite over every tier of caches, and what a damaged or absent one means."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from fastvideo.cache import redis_tier
from fastvideo.cache.keys import key_digest, text_hash
from fastvideo.cache.memory_tier import MemoryTier
from fastvideo.cache.redis_tier import RedisTier
from fastvideo.cache.tiers import load_tensor, save_tensor
from fastvideo.errors import ContractViolation, InvalidField
from fastvideo.loops.contract import SharedTier, StepContext
from fastvideo.loops.state_encoding import tensor_digest
from fastvideo.model.caching import CacheKey, CacheOutcome
from fastvideo.scheduling.work import (
    CachePlan,
    LoopRef,
    PlacementHint,
    ResourceRequest,
    StepRange,
    UnitKind,
    WorkUnit,
)
from tests.plugins.redis import redis_address, wait_for_redis
from tests.plugins.servers import ServerProcess

KEY = CacheKey(
    model_id="m",
    component_id="text_encoder",
    weights_version="w1",
    input_hashes={"text": text_hash("a red fox")},
    cache_contract_version="1",
)
OTHER = replace(KEY, weights_version="w2")
VALUE_BYTES_MAX = 4096


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine Redis may be late, which would be a miss."""
    monkeypatch.setattr(redis_tier, "_TIMEOUT_S", 30.0)


@pytest.fixture(params=["memory", "redis"])
def tier(request: pytest.FixtureRequest, patient: None) -> Iterator[SharedTier]:
    if request.param == "memory":
        yield MemoryTier(VALUE_BYTES_MAX)
        return
    server: ServerProcess = request.getfixturevalue("redis_server")
    made = RedisTier(redis_address(server), value_bytes_max=VALUE_BYTES_MAX)
    yield made
    made.close()


def context_of(tier: SharedTier | None, *keys: CacheKey) -> StepContext:
    """The context of a unit that has planned to read and write these keys."""
    digests = tuple(key_digest(key) for key in keys)
    unit = WorkUnit(
        unit_id="u",
        loop=LoopRef(),
        kind=UnitKind.CACHE_LOAD,
        step_range=StepRange(start=0, stop=1, total=1),
        resources=ResourceRequest(),
        cache_plan=CachePlan(reads=digests, writes=digests),
        placement_hint=PlacementHint(),
    )
    return StepContext(tier=tier, unit=unit)


def test_what_was_kept_comes_back_with_its_bits_and_is_reported(tier: SharedTier) -> None:
    value = torch.randn(3, 5)
    assert save_tensor(context_of(tier, KEY), KEY, value)
    context = context_of(tier, KEY)
    found = load_tensor(context, KEY)
    assert found is not None
    assert torch.equal(found, value)
    [lookup] = context.lookups["u"]
    assert (lookup.outcome, lookup.size_bytes) == (CacheOutcome.HIT, 60)
    assert lookup.key_digest == key_digest(KEY)


def test_what_was_kept_and_found_is_noted_with_its_key_and_its_bits(tier: SharedTier) -> None:
    value = torch.randn(3, 5)
    saving, loading = context_of(tier, KEY), context_of(tier, KEY)
    save_tensor(saving, KEY, value)
    load_tensor(loading, KEY)
    for context, outcome in ((saving, CacheOutcome.KEPT), (loading, CacheOutcome.HIT)):
        [access] = context.accesses
        assert (access.key, access.tier, access.unit_id) == (KEY, tier.name, "u")
        assert (access.lookup.outcome, access.lookup.size_bytes) == (outcome, 60)
        assert access.lookup.key_digest == key_digest(KEY)
        assert access.lookup.value_digest == tensor_digest(value)
    assert "u" not in saving.lookups


@pytest.mark.row("VAL-07")
@pytest.mark.parametrize(
    "broken",
    [
        replace(KEY, model_id=""),
        replace(KEY, cache_contract_version=""),
        replace(KEY, input_hashes={}),
        replace(KEY, input_hashes={"text": "a red fox"}),
        replace(KEY, step_index=-1),
    ],
)
def test_nothing_is_kept_under_a_key_that_is_not_whole(tier: SharedTier, broken: CacheKey) -> None:
    with pytest.raises(InvalidField, match=r"^key\."):
        save_tensor(context_of(tier, broken), broken, torch.ones(1))


def test_what_was_never_kept_is_a_miss(tier: SharedTier) -> None:
    context = context_of(tier, OTHER)
    assert load_tensor(context, OTHER) is None
    assert [lookup.outcome for lookup in context.lookups["u"]] == [CacheOutcome.MISS]


def test_a_value_above_the_budget_is_not_kept(tier: SharedTier) -> None:
    assert not save_tensor(context_of(tier, OTHER), OTHER, torch.zeros(VALUE_BYTES_MAX))
    assert load_tensor(context_of(tier, OTHER), OTHER) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[:20],
        lambda data: b"",
        lambda data: data.replace(key_digest(KEY).encode(), key_digest(OTHER).encode()),
    ],
    ids=["a flipped bit", "a cut", "nothing", "another key"],
)
def test_a_damaged_entry_is_a_miss(tier: SharedTier, damage: Callable[[bytes], bytes]) -> None:
    save_tensor(context_of(tier, KEY), KEY, torch.ones(4))
    digest = key_digest(KEY)
    data = tier.get(digest)
    assert data is not None
    tier.put(digest, damage(data))
    assert load_tensor(context_of(tier, KEY), KEY) is None


def test_a_unit_uses_only_the_keys_that_it_has_planned(tier: SharedTier) -> None:
    with pytest.raises(ContractViolation, match="not planned to read"):
        load_tensor(context_of(tier, KEY), OTHER)
    with pytest.raises(ContractViolation, match="not planned to write"):
        save_tensor(context_of(tier, KEY), OTHER, torch.ones(1))


def test_without_a_tier_everything_is_a_miss() -> None:
    assert not save_tensor(context_of(None, KEY), KEY, torch.ones(1))
    assert load_tensor(context_of(None, KEY), KEY) is None


def test_memory_lets_the_least_used_go() -> None:
    tier = MemoryTier(100)
    for name in ("a", "b"):
        tier.put(name, bytes(40))
    tier.get("a")
    tier.put("c", bytes(40))
    assert [name for name in "abc" if tier.get(name) is not None] == ["a", "c"]


def test_a_redis_that_is_gone_has_nothing_and_one_that_comes_back_serves_again(
    redis_server: ServerProcess, patient: None
) -> None:
    tier = RedisTier(redis_address(redis_server))
    value = torch.ones(4)
    assert save_tensor(context_of(tier, KEY), KEY, value)
    redis_server.kill()
    assert not save_tensor(context_of(tier, KEY), KEY, value)
    assert load_tensor(context_of(tier, KEY), KEY) is None
    redis_server.start()
    wait_for_redis(redis_server.port)
    assert load_tensor(context_of(tier, KEY), KEY) is None
    assert save_tensor(context_of(tier, KEY), KEY, value)
    assert load_tensor(context_of(tier, KEY), KEY) is not None
    tier.close()
