"""What happens beside a step is in the next report: evictions, pressure, peaks, moves."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import torch

from fastvideo.cache.keys import key_digest
from fastvideo.clock import ManualClock
from fastvideo.engine.memory_watch import INTERVAL_S, MemoryWatch
from fastvideo.engine.notes import NoteBook
from fastvideo.engine.transfers import Transfers
from fastvideo.errors import FastVideoError, InvalidField
from fastvideo.media.tensors import encode_tensors
from fastvideo.memory.pools import MemoryPools, MemoryTag
from fastvideo.model.caching import CacheKey, CacheOutcome
from fastvideo.model.transfers import TransferManifest, TransferTensor
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.commands import ExecuteBatch, ReleaseLoops
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.notes import REPORT_NOTES_MAX
from fastvideo.scheduling.traces import (
    CacheAccessed,
    MemoryReported,
    NonFiniteFound,
    TraceNote,
    TransferRecorded,
    TransferState,
)
from fastvideo.scheduling.work import UnitKind, WorkPlan

World = Any
MakeRequest = Callable[..., RequestSpec]

BUDGETS = dict.fromkeys(MemoryTag, 1_000)


@dataclass(frozen=True)
class Value:
    nbytes: int


def key(name: str) -> CacheKey:
    return CacheKey(model_id="m", input_hashes={"text": name})


def reported(world: World, *plans: WorkPlan) -> BatchExecuted:
    """The report of a step, with all that was noted."""
    unit_ids = tuple(unit.unit_id for plan in plans for unit in plan.units)
    command = ExecuteBatch(batch_id="b", kind=UnitKind.DIFFUSION_STEP, unit_ids=unit_ids)
    report: BatchExecuted = world.executor.noting.with_notes(world.executor.execute(command))
    return report


def of_type(notes: tuple[TraceNote, ...], kind: type) -> list[Any]:
    return [note for note in notes if isinstance(note, kind)]


@pytest.mark.row("CCH-07", "EVT-19")
def test_what_pressure_drives_out_is_told_with_keys_and_the_pool(
    make_world: type[World], make_request: MakeRequest
) -> None:
    world = make_world(budget_bytes=2_000)
    for name in "abcd":
        world.executor.features.keep(key(name), Value(200))
    world.kernel.memory_bytes = {"activations": 3_300}
    notes = reported(world, world.prepare(make_request("hungry"))).notes
    [accessed] = of_type(notes, CacheAccessed)
    assert [(a.lookup.outcome, a.key) for a in accessed.accesses] == [
        (CacheOutcome.EVICT, key("a"))
    ]
    assert accessed.accesses[0].lookup.key_digest == key_digest(key("a"))
    [pressure] = [n for n in of_type(notes, MemoryReported) if n.reason == "pressure"]
    assert (pressure.pool, pressure.evicted_bytes) == ("caches", 200)
    assert pressure.budget_bytes == 2_000


def test_a_request_that_ends_tells_of_new_peaks(
    make_world: type[World], make_request: MakeRequest
) -> None:
    world = make_world()
    world.prepare(make_request("r"))
    world.executor.release(ReleaseLoops(request_id="r", attempt=1))
    notes = reported(world, world.prepare(make_request("next"))).notes
    peaks = {n.pool: n for n in of_type(notes, MemoryReported) if n.reason == "reserved"}
    assert peaks["activations"].in_use_bytes > 0


def test_what_does_not_fit_into_a_report_waits_for_the_next(
    make_world: type[World], make_request: MakeRequest
) -> None:
    world = make_world()
    found = [NonFiniteFound(request_id=str(n)) for n in range(REPORT_NOTES_MAX + 3)]
    world.executor.noting.book.add(*found)
    first, second = (reported(world, world.prepare(make_request(n))) for n in ("a", "b"))
    assert len(first.notes) == REPORT_NOTES_MAX
    signed = [replace(note, worker_id=first.worker_id) for note in found]
    assert [*first.notes, *second.notes][: len(found)] == signed


def test_pressure_is_told_once_in_a_while_with_all_that_went() -> None:
    clock, book = ManualClock(datetime(2026, 1, 1, tzinfo=UTC)), NoteBook()
    watch = MemoryWatch(MemoryPools(BUDGETS), book, "w1", clock)
    for _ in range(3):
        watch.evicted(MemoryTag.CACHES, 10)
    clock.set(clock.now() + timedelta(seconds=INTERVAL_S + 1))
    watch.evicted(MemoryTag.CACHES, 10)
    assert [n.evicted_bytes for n in of_type(book.take(10), MemoryReported)] == [10, 30]


def test_only_a_new_peak_is_told() -> None:
    clock, book = ManualClock(datetime(2026, 1, 1, tzinfo=UTC)), NoteBook()
    pools = MemoryPools(BUDGETS)
    watch = MemoryWatch(pools, book, "w1", clock)
    for size in (100, 100, 101, 500):
        pools.resize(MemoryTag.ACTIVATIONS, "r", size)
        watch.reserved()
        clock.set(clock.now() + timedelta(seconds=INTERVAL_S + 1))
    told = [(n.pool, n.in_use_bytes) for n in of_type(book.take(10), MemoryReported)]
    assert told == [("activations", 100), ("activations", 500)]


def test_sleep_and_wake_are_told_by_pool() -> None:
    book = NoteBook()
    watch = MemoryWatch(
        MemoryPools(BUDGETS), book, "w1", ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    )
    watch.changed(frozenset({MemoryTag.CACHES, MemoryTag.WEIGHTS}), "slept")
    told = of_type(book.take(10), MemoryReported)
    assert [(n.pool, n.reason) for n in told] == [("caches", "slept"), ("weights", "slept")]


@pytest.mark.row("EVT-20")
@pytest.mark.parametrize("payload", ["right", "wrong"])
def test_a_move_is_told_from_its_start_to_its_end(make_world: type[World], payload: str) -> None:
    world, book = make_world(), NoteBook()
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    transfers = Transfers(world.executor.values, book, clock)
    manifest = TransferManifest(
        transfer_id="t1",
        tensors=(TransferTensor(name="x", shape=(2,), dtype="float32"),),
        consumer_id="r/1",
        lifetime="request",
    )
    data = encode_tensors({"x": torch.zeros(2 if payload == "right" else 3)})
    error: FastVideoError | None = None
    try:
        transfers.receive(manifest, data)
    except InvalidField as raised:
        error = raised
    begun, ended = of_type(book.take(10), TransferRecorded)
    assert (begun.state, begun.manifest, begun.request_id) == (TransferState.STARTED, manifest, "r")
    assert ended.size_bytes == len(data)
    if payload == "right":
        assert (error, ended.state, ended.error) == (None, TransferState.COMPLETED, None)
    else:
        assert error is not None
        assert ended.state is TransferState.FAILED
        assert (ended.error.reason, ended.error.subject) == (error.reason, "payload.x")


@pytest.mark.row("MEM-05")
def test_what_leaves_is_staged_until_it_is_sent(make_world: type[World]) -> None:
    world = make_world()
    transfers = Transfers(
        world.executor.values, NoteBook(), ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    )
    manifest = TransferManifest(
        transfer_id="t1",
        tensors=(TransferTensor(name="x", shape=(2,), dtype="float32"),),
        consumer_id="r/1",
        lifetime="request",
    )
    transfers.receive(manifest, encode_tensors({"x": torch.zeros(2)}))
    assert world.pools.in_use_bytes()["staging"] == 0
    _, payload, staged = transfers.send(replace(manifest, producer_id="r/1", consumer_id="p/1"))
    assert world.pools.in_use_bytes()["staging"] >= len(payload) > 0
    staged.close()
    assert world.pools.in_use_bytes()["staging"] == 0
