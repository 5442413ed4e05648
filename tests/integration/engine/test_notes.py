"""What an engine notes beside its results: caches, graphs, and numbers that are none."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from fastvideo.cache.keys import key_digest, text_hash
from fastvideo.engine.engine import Engine
from fastvideo.engine.results import RequestHandle
from fastvideo.errors import FastVideoError
from fastvideo.loops.contract import StepContext
from fastvideo.model.caching import CacheKey, CacheOutcome
from fastvideo.scheduling.traces import CacheAccess, CacheAccessed, GraphUsed, NonFiniteFound
from fastvideo.scheduling.work import (
    CachePlan,
    LoopRef,
    PlacementHint,
    ResourceRequest,
    StepRange,
    UnitKind,
    WorkUnit,
)
from tests.families.served import standing_still

WAIT_S_MAX = 120.0
STEPS = 6
BAD_STEP = 3


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(threads=1) as made:
        yield made


def kernel_of(engine: Engine, loop_id: str) -> Any:
    [instance] = engine._residents.all()
    return instance.kernels[loop_id]


def accesses(made: Any) -> list[CacheAccess]:
    return [
        access
        for note in made.notes
        if isinstance(note, CacheAccessed)
        for access in note.accesses
        if access.request_id == made.request_id
    ]


def outcomes(made: Any) -> list[CacheOutcome]:
    return [access.lookup.outcome for access in accesses(made)]


def poison(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, request_id: list[str]
) -> list[list[str]]:
    """Put a NaN into the latents of one request before a step; gives the batches that ran."""
    kernel = kernel_of(engine, "denoise")
    run_step = kernel.run_step
    batches: list[list[str]] = []

    def poisoned(batch: Sequence[tuple[Any, WorkUnit]], *rest: Any) -> Any:
        batches.append([unit.loop.request_id for _, unit in batch])
        given = []
        for state, unit in batch:
            if unit.loop.request_id in request_id and unit.step_range.start == BAD_STEP:
                latents = state.latents.clone()
                latents.view(-1)[7] = float("nan")
                state = replace(state, latents=latents)
            given.append((state, unit))
        return run_step(given, *rest)

    monkeypatch.setattr(kernel, "run_step", poisoned)
    return batches


@pytest.mark.row("OBS-07")
def test_of_a_shared_batch_only_the_request_with_a_nan_fails_and_its_first_bad_step_is_named(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [f"a red {digit} moving left" for digit in ("one", "two", "four", "five")]
    alone = [
        engine.submit(prompt, seed=number, steps=STEPS).result(WAIT_S_MAX).latents_digest
        for number, prompt in enumerate(prompts)
    ]
    bad: list[str] = []
    batches = poison(monkeypatch, engine, bad)
    with standing_still(engine):
        handles: list[RequestHandle] = [
            engine.submit(prompt, seed=number, steps=STEPS) for number, prompt in enumerate(prompts)
        ]
        bad.append(handles[2].request_id)
    with pytest.raises(FastVideoError) as caught:
        handles[2].result(WAIT_S_MAX)
    error = caught.value
    assert error.reason == "NON_FINITE"
    assert (error.attributes["node"], error.attributes["step"]) == ("denoise", str(BAD_STEP))
    assert error.attributes["component"] == "transformer"
    for number in (0, 1, 3):
        assert handles[number].result(WAIT_S_MAX).latents_digest == alone[number]
    # It was not alone when it went wrong.
    assert any(len(ran) > 1 and bad[0] in ran for ran in batches)
    found = [note for note in handles[2].notes if isinstance(note, NonFiniteFound)]
    assert [(note.request_id, note.node_id, note.step) for note in found] == [
        (bad[0], "denoise", BAD_STEP)
    ]
    [note] = found
    assert (note.component, note.worker_id) == ("transformer", "engine")
    assert 0 < note.nans <= note.elements
    others = [handles[number].notes for number in (0, 1, 3)]
    assert not any(isinstance(n, NonFiniteFound) for notes in others for n in notes)


def test_nobody_watches_when_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(threads=1) as engine:
        monkeypatch.setattr(engine._executor._stepper, "_watch_finite", False)
        bad: list[str] = []
        poison(monkeypatch, engine, bad)
        with standing_still(engine):
            handle = engine.submit("a red three moving left", steps=STEPS)
            bad.append(handle.request_id)
        assert handle.result(WAIT_S_MAX).latents_digest


@pytest.mark.row("CCH-07")
def test_a_cached_run_equals_an_uncached_one_and_its_looks_say_which_it_was(
    engine: Engine,
) -> None:
    engine._executor.features.invalidate(lambda key: True)
    asked: dict[str, Any] = {"seed": 11, "steps": 3}
    cold, warm = (
        engine.submit("a prompt that is asked twice", **asked).result(WAIT_S_MAX) for _ in range(2)
    )
    assert warm.latents_digest == cold.latents_digest
    assert [a.record.digest for a in warm.artifacts] == [a.record.digest for a in cold.artifacts]
    assert outcomes(cold) == [CacheOutcome.MISS, CacheOutcome.KEPT] * 2
    assert outcomes(warm) == [CacheOutcome.HIT] * 2
    kept = [access for access in accesses(cold) if access.lookup.outcome is CacheOutcome.KEPT]
    for made, found in zip(kept, accesses(warm), strict=True):
        assert made.key == found.key
        assert made.key is not None
        assert made.lookup.key_digest == found.lookup.key_digest == key_digest(made.key)
        assert made.lookup.value_digest == found.lookup.value_digest != ""
        assert (made.tier, found.tier) == ("worker", "worker")
    # What is driven out is told, and then computed again with the same bits.
    engine._executor.features.invalidate(lambda key: key == kept[0].key)
    again = engine.submit("a prompt that is asked twice", **asked).result(WAIT_S_MAX)
    assert outcomes(again) == [CacheOutcome.MISS, CacheOutcome.KEPT, CacheOutcome.HIT]
    assert again.latents_digest == cold.latents_digest
    gone = [
        access.lookup.key_digest
        for note in again.notes
        if isinstance(note, CacheAccessed)
        for access in note.accesses
        if access.lookup.outcome is CacheOutcome.EVICT
    ]
    assert gone == [kept[0].lookup.key_digest]


KEY = CacheKey(
    model_id="moving-digits",
    component_id="text_encoder",
    weights_version="w",
    input_hashes={"text": text_hash("a")},
    cache_contract_version="1",
)
OTHERS: dict[str, Any] = {
    "model_id": "other",
    "component_id": "image_encoder",
    "loop_id": "encode",
    "weights_version": "w2",
    "adapter_versions": {"style": "1"},
    "precision": "bfloat16",
    "parallel_plan_hash": "tp2",
    "shape_signature": "1x64",
    "layout_signature": "D,L",
    "scheduler_signature": "unipc",
    "guidance_signature": "cfg",
    "seed": 1,
    "input_hashes": {"text": text_hash("b")},
    "step_index": 1,
    "cache_contract_version": "2",
}


@pytest.mark.row("CCH-01")
@pytest.mark.parametrize("name", [item.name for item in fields(CacheKey)])
def test_a_key_that_differs_in_any_one_field_misses(engine: Engine, name: str) -> None:
    other = replace(KEY, **{name: OTHERS[name]})
    assert key_digest(other) != key_digest(KEY)
    digests = tuple(key_digest(key) for key in (KEY, other))
    unit = WorkUnit(
        unit_id="u",
        loop=LoopRef(),
        kind=UnitKind.ENCODER_CHUNK,
        step_range=StepRange(),
        resources=ResourceRequest(),
        cache_plan=CachePlan(reads=digests, writes=digests),
        placement_hint=PlacementHint(),
    )
    features = engine._executor.features
    context = StepContext(unit=unit)
    view = features.open(context)
    view.put(KEY, torch.ones(3))
    assert view.get(KEY) is not None
    assert view.get(other) is None
    assert len(fields(CacheKey)) == len(OTHERS) == 15
    features.invalidate(lambda key: key == KEY)


def test_recorded_forwards_are_told_from_the_start() -> None:
    with Engine(threads=1) as engine:
        [instance] = engine._residents.all()
        told = [
            note for note in engine._executor.noting.book.take(1_000) if isinstance(note, GraphUsed)
        ]
    assert {note.change for note in told} <= {"captured", "replayed", "refused"}
    assert "captured" in {note.change for note in told}
    assert {note.model_instance_id for note in told} == {instance.model_instance_id}
    assert all(note.capture_shape for note in told)
