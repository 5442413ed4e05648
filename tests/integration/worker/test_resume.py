"""Loops outlive the stream: whoever comes back goes on with them, bit for bit."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.errors import Fenced
from fastvideo.requests.types import RequestSpec
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import WorkPlan

MakeSpec = Callable[..., RequestSpec]
Attach = Callable[..., Any]


async def steps(client: Any, plan: WorkPlan, count: int) -> tuple[list[str], WorkPlan]:
    """Run some steps of a loop; their digests and the next plan."""
    digests = []
    for _ in range(count):
        executed = await client.execute(plan)
        digests.append(executed.results[0].state_digest)
        plan = executed.results[0].next_plan
    return digests, plan


async def test_a_scheduler_goes_on_with_the_loops_of_the_one_before(
    attach: Attach, epoch: int, driver: Any, entry: CatalogEntry, make_spec: MakeSpec
) -> None:
    async with attach() as client:
        plan = await driver(client, entry, make_spec("whole", steps=8)).until("denoise")
        undisturbed, _ = await steps(client, plan, 6)
        await client.release("whole")
        plan = await driver(client, entry, make_spec("moved", steps=8)).until("denoise")
        first, plan = await steps(client, plan, 3)
        incarnation, reported = client.attached.incarnation, client.reported
    async with attach(epoch + 1, resume=(incarnation, reported)) as other:
        assert other.attached is None
        assert other.again == []
        [loop] = other.reattached.loops
        assert (loop.loop.request_id, loop.loop.node_id, loop.preparing) == (
            "moved",
            "denoise",
            False,
        )
        assert loop.state_version == plan.state_version
        assert other.reattached.scopes == ("moved/1",)
        second, _ = await steps(other, plan, 3)
        await other.release("moved")
    assert first + second == undisturbed


async def test_a_report_that_nobody_heard_comes_again(
    attach: Attach, epoch: int, driver: Any, entry: CatalogEntry, make_spec: MakeSpec
) -> None:
    large = make_spec("unheard", width=128, height=128, num_frames=25, steps=4)
    async with attach() as client:
        plan = await driver(client, entry, large).until("denoise")
        incarnation, reported = client.attached.incarnation, client.reported
        await client.dispatch(plan, batch_id="unheard-1")
        # Answered beside the step: by then the batch is there. The stream breaks while it runs.
        await client.order_snapshot("nobody", release=False)
        await client.next(object)
    async with attach(epoch + 1, resume=(incarnation, reported)) as other:
        told = list(other.again)
        if not any(isinstance(report, BatchExecuted) for report in told):
            assert other.reattached.batch_ids == ("unheard-1",)
            told.append(await other.next(BatchExecuted))
        [executed] = [report for report in told if isinstance(report, BatchExecuted)]
        assert executed.batch_id == "unheard-1"
        assert executed.results[0].error is None
        assert [report.report for report in told] == [reported + 1, reported + 2]
        # What the log does not have yet is kept, also for the one after.
    async with attach(epoch + 2, resume=(incarnation, reported)) as third:
        assert third.again == told
        await third.write(heartbeat=worker_pb2.Heartbeat(acknowledged=reported + 2))
        await third.release("unheard")
        # An answer comes behind all that was written before.
        await third.snapshot("nobody")
    # What it has is not needed any more, and nobody can go back behind it.
    async with attach(epoch + 3, resume=(incarnation, reported)) as fourth:
        assert fourth.attached is not None


async def test_another_incarnation_is_refused_by_name(attach: Attach) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with attach(resume=("inc_of_another_process", 0)):
            pass
    assert from_rpc_error(caught.value).reason == "WORKER_REPLACED"


async def test_an_older_epoch_cannot_go_on(attach: Attach, epoch: int) -> None:
    async with attach() as client:
        incarnation = client.attached.incarnation
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with attach(epoch - 1, resume=(incarnation, 0)):
            pass
    assert isinstance(from_rpc_error(caught.value), Fenced)


async def test_loops_that_nobody_comes_back_for_are_freed(
    start_worker: Callable[..., Any],
    client_type: Any,
    driver: Any,
    entry: CatalogEntry,
    make_spec: MakeSpec,
) -> None:
    forgetful = start_worker("worker-3", {"FASTVIDEO_KEEP_LOOPS_S": "0.3"})
    async with client_type(forgetful.address, 1) as client:
        await driver(client, entry, make_spec("left")).until("denoise")
        incarnation, reported = client.attached.incarnation, client.reported
    async with asyncio.timeout(60):
        while True:
            async with client_type(forgetful.address, 2, resume=(incarnation, reported)) as late:
                if late.attached is not None:
                    health = await late.stub.Health(worker_pb2.HealthRequest(), timeout=60)
                    assert health.loops == 0
                    return
            # It was there in time, and so they are kept as long again.
            await asyncio.sleep(0.5)
