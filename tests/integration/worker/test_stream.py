"""The scheduler's stream: fenced, beaten both ways, drained; the worker stays responsive."""

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from fastvideo import wire
from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.errors import Fenced
from fastvideo.requests.types import RequestSpec
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.scheduling.events import BatchExecuted, LoopFailed

MakeSpec = Callable[..., RequestSpec]
Attach = Callable[..., Any]
# In one long step: on average an answer takes less than a tenth of it.
ANSWERS_MIN = 10


async def test_a_scheduler_is_told_what_the_worker_is(attach: Attach) -> None:
    async with attach() as client:
        attached = client.attached
    assert (attached.worker_id, attached.compute_slots, attached.io_slots) == ("worker-1", 1, 2)
    [instance] = attached.instances
    assert instance.model_id == "moving-digits"
    assert instance.weights_bytes > 15_000_000
    assert attached.memory_bytes.keys() == {"weights", "activations", "caches", "staging"}
    assert attached.fingerprint["threads"] == "1"
    assert {"torch", "diffusers", "transformers", "cpu", "instruction_set", "fastvideo"} <= (
        attached.fingerprint.keys()
    )
    assert any("exact_rows" in name for name in attached.fingerprint)


async def test_an_older_epoch_is_fenced(attach: Attach, epoch: int) -> None:
    async with attach():
        pass
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with attach(epoch - 1):
            pass
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert isinstance(from_rpc_error(caught.value), Fenced)


async def test_a_message_of_another_epoch_ends_the_stream(attach: Attach, epoch: int) -> None:
    async with attach() as client:
        await client.write(epoch=epoch - 1, heartbeat=worker_pb2.Heartbeat(sequence=1))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.next(BatchExecuted)
    assert isinstance(from_rpc_error(caught.value), Fenced)


async def test_a_newer_scheduler_ends_the_older_one_and_begins_from_nothing(
    attach: Attach, epoch: int, driver: Any, entry: CatalogEntry, make_spec: MakeSpec
) -> None:
    async with attach() as old:
        plan = await driver(old, entry, make_spec(f"old-{epoch}")).until("denoise")
        async with attach() as new:
            health = await new.stub.Health(worker_pb2.HealthRequest(), timeout=60)
            assert health.loops == 0
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await old.next(BatchExecuted)
            assert isinstance(from_rpc_error(caught.value), Fenced)
            executed = await new.execute(plan)
            assert executed.results[0].error.reason == "LOOP_RELEASED"


async def test_heartbeats_come_and_silence_ends_the_stream(attach: Attach) -> None:
    async with attach(timeout_s=2.0) as client:
        async with asyncio.timeout(60):
            while client.heartbeats < 2:
                await asyncio.sleep(0.02)
        client.stop_beating()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.next(BatchExecuted)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert from_rpc_error(caught.value).reason == "SILENT"


async def test_a_loop_that_cannot_be_made_is_told_on_the_stream(
    attach: Attach, driver: Any, entry: CatalogEntry, make_spec: MakeSpec
) -> None:
    async with attach() as client:
        command = driver(client, entry, make_spec("too-early")).command("decode")
        await client.write(prepare_loop=wire.to_proto(command))
        failed: LoopFailed = await client.next(LoopFailed)
    assert failed.error.reason == "VALUE_MISSING"
    assert failed.loop.node_id == "decode"


@pytest.mark.row("API-14")
async def test_health_answers_many_times_while_a_long_step_computes(
    attach: Attach, driver: Any, entry: CatalogEntry, make_spec: MakeSpec
) -> None:
    large = make_spec("large", width=256, height=256, num_frames=49, steps=1)
    async with attach(timeout_s=60) as client:
        plan = await driver(client, entry, large).until("denoise")
        step = asyncio.create_task(client.execute(plan))
        answers = 0
        while not step.done():
            health = await client.stub.Health(worker_pb2.HealthRequest(), timeout=60)
            assert health.ready
            answers += 1
        executed = await step
    assert executed.results[0].error is None
    # Counted, not timed: had the step held the event loop, one answer would have taken as long.
    assert answers > ANSWERS_MIN


async def test_the_worker_announces_itself(surroundings: Any, worker: Any) -> None:
    def announced() -> list[Any]:
        return [told for told in surroundings.scheduler.announced if told.worker_id == "worker-1"]

    async with asyncio.timeout(60):
        while not (own := announced()):
            await asyncio.sleep(0.02)
    assert own[-1].address == worker.address
    assert own[-1].incarnation.startswith("inc_")


async def test_sigterm_drains_finishes_what_runs_and_exits_with_0(
    start_worker: Callable[..., Any],
    client_type: Any,
    driver: Any,
    entry: CatalogEntry,
    make_spec: MakeSpec,
) -> None:
    leaving = start_worker("worker-2")
    async with client_type(leaving.address, 1) as client:
        plan = await driver(client, entry, make_spec("last", steps=2)).until("denoise")
        leaving.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(client.draining.wait(), 30.0)
        # A request that is here goes on; another is not taken.
        executed = await client.execute(plan)
        assert executed.results[0].next_plan is not None
        with pytest.raises(AssertionError, match="DRAINING"):
            await driver(client, entry, make_spec("late")).until("denoise")
        await client.release("last")
        with pytest.raises(EOFError):
            await client.next(BatchExecuted)
    assert await asyncio.to_thread(leaving.process.wait, 60) == 0
