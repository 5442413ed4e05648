"""Cache replay: keys derived again, values computed again; what is forged or wrong is named."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from fastvideo.cache.keys import key_digest, text_hash
from fastvideo.engine.engine import Engine
from fastvideo.engine.fingerprint import machine_fingerprint
from fastvideo.model.caching import CacheKey, CacheOutcome
from fastvideo.recompute import cache
from fastvideo.recompute.host import Host, HostSetup
from fastvideo.recompute.sources import NoSources
from fastvideo.replay.types import (
    Comparison,
    LoggedRun,
    LoggedStep,
    ReplayKind,
    ReplayProgress,
    ReplayReport,
    ReplayRequest,
)
from fastvideo.requests.types import RequestStatus
from fastvideo.scheduling.traces import CacheAccess, CacheAccessed

WAIT_S_MAX = 120.0
MODEL = "moving-digits"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine((MODEL,), threads=1) as made:
        yield made


def logged(engine: Engine, prompt: str) -> LoggedRun:
    """What the log would say of a request that ran here, as far as caches go."""
    made = engine.submit(prompt, seed=3, steps=1).result(WAIT_S_MAX)
    [instance] = engine._residents.all()
    return LoggedRun(
        spec=made.request,
        status=RequestStatus.COMPLETED,
        attempt=1,
        instance=instance.state(),
        fingerprint=machine_fingerprint(1)
        | {f"{MODEL}/{name}": fact for name, fact in instance.fingerprint.items()},
        accesses=tuple(
            access
            for note in made.notes
            if isinstance(note, CacheAccessed)
            for access in note.accesses
            if access.request_id == made.request_id
        ),
    )


@pytest.fixture(scope="module")
def run(engine: Engine) -> LoggedRun:
    """One run for all that only forge what is logged of it."""
    return logged(engine, "a yellow nine")


def replayed(run: LoggedRun, **options: Any) -> ReplayReport:
    told: list[ReplayProgress | Comparison] = []
    request = ReplayRequest(kind=ReplayKind.CACHE, subject_id=run.spec.request_id, **options)
    host = Host(run, HostSetup(threads=1), NoSources())
    report = cache.replay(request, run, host, told.append)
    assert sum(isinstance(one, Comparison) for one in told) == report.compared
    return report


def changed(run: LoggedRun, number: int, change: Callable[[CacheAccess], CacheAccess]) -> LoggedRun:
    accesses = list(run.accesses)
    accesses[number] = change(accesses[number])
    return replace(run, accesses=tuple(accesses))


def outcomes(run: LoggedRun) -> list[CacheOutcome]:
    return [access.lookup.outcome for access in run.accesses]


def test_what_was_kept_and_what_was_found_has_the_keys_and_bits_of_today(engine: Engine) -> None:
    cold, warm = (logged(engine, "a red three moving left, twice") for _ in range(2))
    assert outcomes(cold) == [CacheOutcome.MISS, CacheOutcome.KEPT] * 2
    assert outcomes(warm) == [CacheOutcome.HIT] * 2
    report = replayed(cold)
    assert report.equal
    # A key for each look, a value for each that was kept.
    assert (report.compared, report.differing) == (4 + 2, 0)
    report = replayed(warm)
    assert report.equal
    assert (report.compared, report.promise.kind) == (2 + 2, "bits")
    assert "same bits" in report.headline


def test_a_wrong_value_is_found_and_its_component_named(engine: Engine) -> None:
    prompt = "a blue five moving up, poisoned"
    first = logged(engine, prompt)
    poisoned = next(access.key for access in first.accesses if access.key is not None)
    entry = engine._executor.features.find(key_digest(poisoned))
    assert entry is not None
    features = entry.value.clone()
    features.view(-1)[5] += 1e-6
    assert engine._executor.publish(poisoned, features)
    report = replayed(logged(engine, prompt))
    assert not report.equal
    assert report.differing == 1
    found = report.first_divergence
    assert found is not None
    assert (found.node_id, found.component) == ("encode", "text_encoder")
    assert found.subject.endswith("value")
    assert "another value" in found.detail
    engine._executor.features.invalidate(lambda key: True)


def test_a_forged_digest_is_found(engine: Engine) -> None:
    run = changed(
        logged(engine, "a green two"),
        0,
        lambda access: replace(access, lookup=replace(access.lookup, key_digest="0" * 64)),
    )
    found = replayed(run).first_divergence
    assert found is not None
    assert found.expected == "0" * 64
    assert "the digest is not that of its key" in found.detail


OTHERS: dict[str, Any] = {
    "model_id": "other",
    "component_id": "vae",
    "loop_id": "decode",
    "weights_version": "w0",
    "adapter_versions": {"style": "1"},
    "precision": "bfloat16",
    "parallel_plan_hash": "tp2",
    "shape_signature": "1x7",
    "layout_signature": "D,L",
    "scheduler_signature": "euler",
    "guidance_signature": "cfg",
    "seed": 9,
    "input_hashes": {"text": text_hash("another text")},
    "step_index": 4,
    "cache_contract_version": "0",
}


@pytest.mark.parametrize("name", [item.name for item in fields(CacheKey)])
def test_a_look_under_another_key_is_found_and_the_field_named(run: LoggedRun, name: str) -> None:
    def forge(access: CacheAccess) -> CacheAccess:
        assert access.key is not None
        key = replace(access.key, **{name: OTHERS[name]})
        return replace(access, key=key, lookup=replace(access.lookup, key_digest=key_digest(key)))

    report = replayed(changed(run, 1, forge))
    found = report.first_divergence
    assert found is not None
    assert (report.equal, report.differing) == (False, 1)
    assert f"differs in {name}: " in found.detail
    assert "not that of its key" not in found.detail


def test_a_sample_of_the_values_is_compared_and_all_keys(run: LoggedRun) -> None:
    keys = len(run.accesses)
    few = replayed(run, sample=1e-9)
    assert few.equal
    assert few.compared == keys


def test_of_an_older_log_the_digests_in_the_steps_are_compared(run: LoggedRun) -> None:
    looks = [
        replace(access, lookup=replace(access.lookup, value_digest=""))
        for access in run.accesses
        if access.lookup.outcome is not CacheOutcome.KEPT
    ]
    steps = tuple(
        LoggedStep(node_id="encode", unit_id=access.unit_id, cache_lookups=(access.lookup,))
        for access in looks
    )
    older = replace(run, accesses=(), steps=steps)
    assert (replayed(older).equal, replayed(older).compared) == (True, len(looks))
    forged = replace(looks[0].lookup, key_digest="f" * 64)
    older = replace(older, steps=(replace(steps[0], cache_lookups=(forged,)), *steps[1:]))
    assert not replayed(older).equal


def test_a_run_that_looked_into_no_cache_has_nothing_to_compare(run: LoggedRun) -> None:
    report = replayed(replace(run, accesses=()))
    assert (report.equal, report.compared) == (True, 0)
    assert "no cache" in report.headline


def test_other_weights_are_another_model(run: LoggedRun) -> None:
    other = replace(run, instance=replace(run.instance, weights_version="w-of-yesterday"))
    report = replayed(other)
    assert report.promise.kind == "none"
    assert not report.equal
    assert report.first_divergence is not None
    assert "weights_version" in report.first_divergence.detail


def test_where_bits_are_not_promised_values_are_not_compared(run: LoggedRun) -> None:
    elsewhere = replace(run, fingerprint={**run.fingerprint, "cpu": "another"})
    report = replayed(elsewhere)
    assert (report.equal, report.compared) == (True, len(run.accesses))
    assert "not compared" in report.headline
