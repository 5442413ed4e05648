"""Memory under requests of every kind: none fails for a lack of it, and all of it comes back."""

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from fastvideo.cache.adapters import AdapterCache
from fastvideo.cache.keys import key_digest
from fastvideo.engine.engine import Engine
from fastvideo.engine.request_memory import RequestMemory
from fastvideo.engine.results import RequestHandle
from fastvideo.errors import Cancelled
from fastvideo.loops.contract import StepContext
from fastvideo.memory.pools import MemoryPools, MemoryTag, OutOfMemory
from fastvideo.model.caching import CacheClass, CacheKey, CacheOutcome
from fastvideo.scheduling.work import (
    OFF_STEP_PATH,
    CachePlan,
    LoopRef,
    PlacementHint,
    ResourceRequest,
    StepRange,
    UnitKind,
    WorkUnit,
)

Run = Callable[..., Any]
MakeEngine = Callable[..., Engine]
Asked = dict[str, Any]

MIB = 1 << 20
WAIT_S_MAX = 600.0
# Half of the activations' pool, 13 MiB, just holds one frame's decoding; what requests keep
# has the other half, so that only some of them are let in at once.
TIGHT_BYTES = 88 * MIB


def video(index: int, **options: Any) -> Asked:
    prompt = f"a red {index % 7} moving left"
    return {"model": "moving-digits", "prompt": prompt, "steps": 3, "seed": index} | options


def pocket(index: int, program: str, **options: Any) -> Asked:
    prompt = f"a red fox {index % 3}"
    return {"model": "pocket", "program": program, "prompt": prompt, "seed": index} | options


def mixed(count: int, seed: int) -> Iterator[Asked]:
    """Requests of all kinds in random order; every third is a video."""
    kinds: list[Callable[[int], Asked]] = [
        video,
        lambda index: pocket(index, "tell", steps=8),
        lambda index: pocket(index, "recite", steps=6),
        video,
        lambda index: pocket(index, "paint", steps=4),
        lambda index: pocket(index, "paint_windows", steps=8),
        video,
        lambda index: pocket(index, "paint_captured", steps=3),
        lambda index: pocket(index, "roll", steps=2, num_frames=2),
    ]
    made = [kinds[index % len(kinds)](index) for index in range(count)]
    random.Random(seed).shuffle(made)
    return iter(made)


def stale_of(version: str) -> Callable[[CacheKey], bool]:
    return lambda key: key.weights_version == version


def settled(engine: Engine) -> dict[str, dict[str, float]]:
    """What is held and reserved anywhere, once nothing runs and the caches are emptied."""
    for instance in engine._residents.all():
        version = instance.weights_version
        engine._executor.features.invalidate(stale_of(version))
    usage = engine._pools.usage()
    return {
        "in use": {tag.value: pool.in_use for tag, pool in usage.items()},
        "reserved": {tag.value: pool.reserved for tag, pool in usage.items()},
        "scheduler": {name: amount for name, amount in engine._core.reserved.items() if amount},
        "loops": {"live": engine._executor.loops},
        "waiting": {"for memory": engine._executor.waiting_for_memory},
    }


@pytest.fixture(scope="module")
def tight(make_engine: MakeEngine) -> Engine:
    """An engine with hardly enough memory, whose scheduler does not know for how many.

    It lets in too many, as it does where requests are larger than usual.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RequestMemory, "places", 0)
        return make_engine(("pocket", "moving-digits"), memory_bytes=TIGHT_BYTES)


class Waiters:
    """Watches how many requests wait for memory at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._take = engine._executor.claim_memory
        self.most = 0

    def __enter__(self) -> "Waiters":
        def watched(command: Any) -> Any:
            granted = self._take(command)
            self.most = max(self.most, self._engine._executor.waiting_for_memory)
            return granted

        self._engine._executor.claim_memory = watched  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._engine._executor.claim_memory = self._take  # type: ignore[method-assign]


def soak(engine: Engine, record: Run, count: int, seed: int) -> None:
    """Ask for all at once, cancel some, and look that nothing failed and nothing stayed."""
    before = settled(engine)
    chosen = random.Random(seed)
    with record(engine) as log, Waiters(engine) as waiters:
        handles: list[RequestHandle] = []
        for asked in mixed(count, seed):
            handles.append(engine.submit(**asked))
        cancelled = chosen.sample(handles, count // 8)
        for handle in cancelled:
            handle.cancel("the soak changed its mind")
        failures = []
        for handle in handles:
            try:
                handle.result(WAIT_S_MAX)
            except Cancelled:
                assert handle in cancelled
            except OutOfMemory as error:
                failures.append(error)
    assert failures == []
    results = [result for ran in log.batches for result in ran.executed.results]
    wrong = {result.error.reason for result in results if result.error is not None}
    # A cancelled request's unit may end as released; none ends for a lack of anything.
    assert wrong <= {"LOOP_RELEASED"}
    assert len(results) >= 4 * count
    assert len({ran.kind for ran in log.batches}) >= 9
    # The scheduler had reserved what each batch ran on before it began, as did the worker, which
    # refuses to run anything else.
    for ran in log.batches:
        beside = ran.kind in OFF_STEP_PATH
        assert ran.reserved["io_slots" if beside else "compute_slots"] >= 1
        taken = [amount for name, amount in ran.reserved.items() if name.startswith("memory_")]
        assert sum(taken) > 0 or beside
    # Memory was short: some had to wait for others.
    assert waiters.most > 0
    assert settled(engine) == before
    for tag, pool in engine._pools.usage().items():
        assert pool.high_water <= pool.budget, tag


@pytest.mark.row("MEM-06", "PHX-03", "VAL-06")
def test_in_a_soak_of_mixed_kinds_no_unit_fails_for_memory_and_all_of_it_comes_back(
    tight: Engine, record: Run
) -> None:
    soak(tight, record, count=45, seed=1)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_a_longer_soak_ends_as_the_short_one(tight: Engine, record: Run, seed: int) -> None:
    soak(tight, record, count=200, seed=seed)


def test_requests_that_had_to_wait_for_memory_have_the_bits_of_requests_alone(
    tight: Engine, run_all: Run
) -> None:
    asked = [video(index, steps=1) for index in range(10)]
    expected = [run_all(tight, one)[0][0].latents_digest for one in asked]
    with Waiters(tight) as waiters:
        results, _ = run_all(tight, *asked)
    assert [result.latents_digest for result in results] == expected
    assert waiters.most > 0


def test_no_more_requests_are_let_in_than_have_room(make_engine: MakeEngine, run_all: Run) -> None:
    engine = make_engine(("moving-digits",), memory_bytes=TIGHT_BYTES)
    places = engine._executor.places
    assert 2 <= places < 10
    with Waiters(engine) as waiters:
        _, log = run_all(engine, *(video(index, steps=1) for index in range(10)))
    assert max(ran.reserved["resident_requests"] for ran in log.batches) == places
    assert waiters.most == 0


def test_one_that_can_never_fit_is_told_which_memory_it_lacks(tight: Engine, run_all: Run) -> None:
    with pytest.raises(Exception, match="activations") as caught:
        run_all(tight, video(0, size=(256, 256), num_frames=33))
    assert getattr(caught.value, "reason", "") in ("OUT_OF_MEMORY", "RESOURCE_EXHAUSTED")
    results, _ = run_all(tight, video(0))
    assert results[0].latents_digest


# -- eviction under pressure ---------------------------------------------------------------


def adapter_key(name: str) -> CacheKey:
    return CacheKey(model_id="pocket", component_id="transformer", adapter_versions={name: "1"})


def adapter_context(key: CacheKey) -> StepContext:
    unit = WorkUnit(
        unit_id=f"unit of {key_digest(key)}",
        loop=LoopRef(),
        kind=UnitKind.DIFFUSION_STEP,
        step_range=StepRange(),
        resources=ResourceRequest(),
        cache_plan=CachePlan(reads=(key_digest(key),)),
        placement_hint=PlacementHint(),
    )
    return StepContext(unit=unit)


class Pressure:
    """Before each batch, takes all the memory that can be had; after it, gives it back."""

    def __init__(self, engine: Engine) -> None:
        self._pools: MemoryPools = engine._pools
        self._engine = engine
        self._execute = engine._executor.execute
        self.evicted: list[Any] = []

    def __enter__(self) -> "Pressure":
        def squeezed(command: Any) -> Any:
            # Artifact writes run beside; one taker is enough.
            if command.kind is not UnitKind.ARTIFACT_WRITE:
                self._squeeze()
            return self._execute(command)

        self._engine._executor.execute = squeezed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._engine._executor.execute = self._execute  # type: ignore[method-assign]

    def _squeeze(self) -> None:
        """As somebody who takes all that is free and what others can give back."""
        for tag in (MemoryTag.ACTIVATIONS, MemoryTag.WEIGHTS):
            try:
                self._pools.resize(tag, "glutton", 1 << 40)
            except OutOfMemory as error:
                free = int(error.attributes["free_bytes"])
            for more in (MIB, MIB // 2, MIB // 4):
                try:
                    self.evicted += self._pools.resize(tag, "glutton", free + more)
                    break
                except OutOfMemory:
                    continue
            self._pools.release("glutton")


@pytest.mark.row("MEM-04")
def test_caches_and_idle_adapters_give_way_and_running_requests_are_unharmed(
    make_engine: MakeEngine, run_all: Run
) -> None:
    engine = make_engine(("pocket", "moving-digits"), memory_bytes=TIGHT_BYTES, tier=None)
    asked = [*(video(index) for index in range(3)), pocket(3, "paint", steps=4)]
    expected = [run_all(engine, one)[0][0] for one in asked]

    def loaded(key: CacheKey) -> dict[str, torch.Tensor]:
        [name] = key.adapter_versions
        generator = torch.Generator().manual_seed(len(name))
        return {"up": torch.randn(256, 1024, generator=generator)}

    adapters = AdapterCache(engine._pools, loaded)
    running, idle = adapter_key("running"), adapter_key("idle")
    with adapters.use(idle, adapter_context(idle)):
        pass
    with adapters.use(running, adapter_context(running)) as tensors:
        kept = tensors["up"].clone()
        # As many entries of others as the caches hold.
        for index in itertools.count():
            key = CacheKey(model_id="others", input_hashes={"text": str(index)})
            if engine._executor.features.keep(key, torch.zeros(64 * 1024)):
                break
        held = engine._executor.features.usage.entries
        assert held > 10
        with Pressure(engine) as pressure:
            results, log = run_all(engine, *asked)
        assert [result.latents_digest for result in results] == [
            result.latents_digest for result in expected
        ]
        assert [[file.record.digest for file in result.artifacts] for result in results] == [
            [file.record.digest for file in result.artifacts] for result in expected
        ]
        assert engine._executor.features.usage.entries < held
        # The adapter that is used is there as it was; the idle one went.
        assert adapters.usage.entries == 1
        assert torch.equal(tensors["up"], kept)
    classes = {lookup.cache_class for lookup in pressure.evicted}
    assert classes == {CacheClass.TEXT_ENCODER_OUTPUT, CacheClass.WEIGHTS_AND_ADAPTERS}
    assert {lookup.outcome for lookup in pressure.evicted} == {CacheOutcome.EVICT}
    assert all(result.error is None for ran in log.batches for result in ran.executed.results)
