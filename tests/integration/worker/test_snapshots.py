"""Loops saved, freed and gone on with, on real workers: equal bits to the last file."""

import asyncio
import hashlib
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fastvideo import wire
from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.artifacts.state import artifact_id_of
from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.requests.types import OutputSpec, RequestSpec
from fastvideo.scheduling.events import BatchExecuted, LoopFailed, RequestSnapshotted

MakeSpec = Callable[..., RequestSpec]
Attach = Callable[..., Any]

FILES = OutputSpec(video=True, preview=True, sheet=True)
NAMES = ("preview", "video", "sheet")


def _files(surroundings: Any, request_id: str) -> dict[str, str]:
    """Digests of the files that a request wrote."""
    stored = surroundings.artifacts.stored
    ids = {name: artifact_id_of(request_id, "write", name) for name in NAMES}
    return {
        name: hashlib.sha256(stored[artifact_id][1]).hexdigest()
        for name, artifact_id in ids.items()
        if artifact_id in stored
    }


def _facts(driven: Any) -> dict[str, Any]:
    """What each node of a request gave."""
    return {node_id: dict(result.digests) for node_id, result in driven.results.items()}


@pytest.mark.row("LOOP-15")
async def test_preempted_in_a_window_other_work_done_resumed_elsewhere_after_a_kill(
    attach: Attach,
    driver: Any,
    entry: CatalogEntry,
    make_spec: MakeSpec,
    surroundings: Any,
    start_worker: Callable[..., Any],
    client_type: Any,
) -> None:
    starting = asyncio.to_thread(start_worker, "worker-3")
    spec = make_spec("moved", steps=30, outputs=FILES)
    async with attach() as client:
        undisturbed = await driver(client, entry, make_spec("still", steps=30, outputs=FILES)).run()
        other_alone = await driver(client, entry, make_spec("other-1", steps=3, seed=5)).run()

        plan = await driver(client, entry, spec).until("denoise")
        await client.dispatch(plan, batch_id="w", window=30)
        await client.order_snapshot("moved")
        executed: BatchExecuted = await client.next(BatchExecuted)
        assert executed.yielded
        snapshotted: RequestSnapshotted = await client.next(RequestSnapshotted)
        assert (snapshotted.released, snapshotted.error) == (True, None)
        by_node = {saved.loop.node_id: saved for saved in snapshotted.snapshots}
        assert by_node["encode"].ended
        assert by_node["denoise"].steps_done == len(executed.results) < 30
        assert by_node["denoise"].state_digest == executed.results[-1].state_digest
        # Nothing of it is left here, and the place is free for others.
        health = await client.stub.Health(worker_pb2.HealthRequest(), timeout=60)
        assert (health.loops, health.memory_bytes["staging"]) == (0, 0)
        other = await driver(client, entry, make_spec("other-2", steps=3, seed=5)).run()
        assert _facts(other) == _facts(other_alone)

        leaving = await starting
        async with client_type(leaving.address, 1) as elsewhere:
            there = driver(elsewhere, entry, spec)
            driven, plan = await there.restore(snapshotted, attempt=2)
            executed = await elsewhere.execute(plan, window=4)
            assert [r.error for r in executed.results] == [None] * 4
            # Saved without a stop, then killed in the middle of what follows.
            saved = await elsewhere.snapshot("moved", 2, release=False)
            assert (saved.released, saved.error) == (False, None)
            await elsewhere.dispatch(executed.results[-1].next_plan, window=30)
            leaving.process.send_signal(signal.SIGKILL)
        here = driver(client, entry, spec)
        driven, plan = await here.restore(saved, attempt=3)
        assert plan.units[0].step_range.start == by_node["denoise"].steps_done + 4
        resumed = await here.go_on(driven, plan)
        assert _facts(resumed) == _facts(undisturbed)
        assert resumed.results["denoise"].digests["latents"]
        health = await client.stub.Health(worker_pb2.HealthRequest(), timeout=60)
        assert health.loops == 0
    files = _files(surroundings, "moved")
    assert files == _files(surroundings, "still")
    assert files.keys() == set(NAMES)


@pytest.mark.row("LOOP-15")
@pytest.mark.parametrize(("node_id", "units"), [("encode", 1), ("decode", 2), ("write", 1)])
async def test_every_loop_of_a_program_is_preempted_and_goes_on_with_equal_bits(
    attach: Attach,
    driver: Any,
    entry: CatalogEntry,
    make_spec: MakeSpec,
    surroundings: Any,
    node_id: str,
    units: int,
) -> None:
    name = f"at-{node_id}"
    spec = make_spec(name, steps=2, seed=9, outputs=FILES)
    async with attach() as client:
        whole = await driver(
            client, entry, make_spec(f"{name}-whole", steps=2, seed=9, outputs=FILES)
        ).run()
        plan = await driver(client, entry, spec).until(node_id)
        for _ in range(units):
            executed = await client.execute(plan)
            plan = executed.results[0].next_plan
        snapshotted = await client.snapshot(name)
        assert snapshotted.error is None
        again = driver(client, entry, spec)
        driven, plan = await again.restore(snapshotted, attempt=2)
        assert plan.units[0].step_range.start == units
        resumed = await again.go_on(driven, plan)
    assert _facts(resumed) == _facts(whole)
    assert _files(surroundings, name) == _files(surroundings, f"{name}-whole")


async def test_a_snapshot_that_cannot_be_read_is_a_typed_failure_of_the_loop(
    attach: Attach, driver: Any, entry: CatalogEntry, make_spec: MakeSpec, surroundings: Any
) -> None:
    spec = make_spec("lost", steps=3)
    async with attach() as client:
        plan = await driver(client, entry, spec).until("denoise")
        await client.execute(plan)
        snapshotted = await client.snapshot("lost")
        [saved] = [saved for saved in snapshotted.snapshots if not saved.ended]
        command = driver(client, entry, spec).command("denoise", attempt=2)
        wrong = {
            "SNAPSHOT_GONE": replace(saved, digest="0" * 64),
            "SNAPSHOT_MISMATCH": replace(saved, weights_version="others"),
        }
        for reason, restore in wrong.items():
            await client.write(prepare_loop=wire.to_proto(replace(command, restore=restore)))
            failed: LoopFailed = await client.next(LoopFailed)
            assert failed.error.reason == reason
        data = surroundings.artifacts.blobs[saved.digest]
        surroundings.artifacts.blobs[saved.digest] = data[:-1] + b"x"
        await client.write(prepare_loop=wire.to_proto(replace(command, restore=saved)))
        failed = await client.next(LoopFailed)
        assert failed.error.reason == "SNAPSHOT_MISMATCH"
        surroundings.artifacts.blobs[saved.digest] = data
        restored = await client.prepare(replace(command, restore=saved))
        assert restored.units[0].step_range.start == 1
        await client.release("lost", 2)


async def test_a_cancelled_stream_writes_nothing_while_the_other_outputs_are_computed(
    attach: Attach, driver: Any, entry: CatalogEntry, make_spec: MakeSpec, surroundings: Any
) -> None:
    async with attach() as client:
        whole = await driver(
            client, entry, make_spec("all-streams", steps=2, seed=4, outputs=FILES)
        ).run()
        spec = make_spec("one-less", steps=2, seed=4, outputs=FILES)
        plan = await driver(client, entry, spec).until("denoise")
        await client.cancel_stream("one-less", "video")
        rest = await driver(client, entry, spec).go_on(_driven_before("denoise", whole), plan)
    assert _facts(rest) == _facts(whole)
    files = _files(surroundings, "all-streams")
    assert files.keys() == set(NAMES)
    del files["video"]
    assert _files(surroundings, "one-less") == files
    assert rest.results["write"].artifact_ids == tuple(
        artifact_id_of("one-less", "write", name) for name in ("preview", "sheet")
    )


def _driven_before(node_id: str, whole: Any) -> Any:
    """What came before a node, of a run that came to its end."""
    before = type(whole)()
    for name, result in whole.results.items():
        if name == node_id:
            break
        before.results[name] = result
    return before


async def test_a_worker_that_is_told_to_stop_hands_over_what_would_not_end_in_time(
    attach: Attach,
    driver: Any,
    entry: CatalogEntry,
    make_spec: MakeSpec,
    start_worker: Callable[..., Any],
    client_type: Any,
) -> None:
    # Large enough that the drain is told long before the window would end.
    shape = {"steps": 20, "width": 96, "height": 96}
    spec = make_spec("handed-over", **shape)
    leaving = await asyncio.to_thread(start_worker, "worker-4")
    async with client_type(leaving.address, 1) as client:
        plan = await driver(client, entry, spec).until("denoise")
        await client.dispatch(plan, window=20)
        leaving.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(client.draining.wait(), 30.0)
        await client.order_snapshot("handed-over")
        executed: BatchExecuted = await client.next(BatchExecuted)
        snapshotted: RequestSnapshotted = await client.next(RequestSnapshotted)
        # It was the last thing that was here, so the worker leaves at once.
        with pytest.raises(EOFError):
            await client.next(BatchExecuted)
    assert await asyncio.to_thread(leaving.process.wait, 60) == 0
    assert snapshotted.released
    async with attach() as client:
        undisturbed = await driver(client, entry, make_spec("stayed", **shape)).run()
        here = driver(client, entry, spec)
        driven, plan = await here.restore(snapshotted, attempt=2)
        assert plan.units[0].step_range.start == len(executed.results)
        assert _facts(await here.go_on(driven, plan)) == _facts(undisturbed)
