"""SchedulerService as a client sees it: announce, status, card, health, reflection, traces."""

from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fastvideo.api.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from fastvideo.errors import InvalidField
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.errors import from_rpc_error
from tests.integration.scheduler.conftest import Stage, until

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


async def test_a_leader_says_what_it_has_and_a_standby_that_it_has_nothing(stage: Stage):
    leader = await stage.scheduler()
    await until(lambda: leader.shard.leader is not None)
    standby = await stage.scheduler("scheduler-2")
    worker = await stage.worker("w1", leader)
    await until(lambda: leader.shard.leader.core.workers)
    status = await stage.status(leader)
    assert (status.scheduler_id, status.leader, status.epoch) == ("scheduler-1", True, 1)
    (known,) = status.workers
    assert (known.worker_id, known.attached, list(known.models)) == ("w1", True, ["moving-digits"])
    assert known.address == worker._server.address
    assert (await stage.status(standby)).leader is False
    announce = scheduler_pb2.AnnounceWorkerRequest(
        worker_id="w1", address=known.address, incarnation=worker.incarnation
    )
    async with open_channel(standby.address) as channel:
        answer = await scheduler_pb2_grpc.SchedulerServiceStub(channel).AnnounceWorker(announce)
        assert (answer.leader, answer.attached) == (False, False)
    async with open_channel(leader.address) as channel:
        answer = await scheduler_pb2_grpc.SchedulerServiceStub(channel).AnnounceWorker(announce)
        assert (answer.leader, answer.attached) == (True, True)


async def test_an_announcement_without_a_name_is_refused(stage: Stage):
    scheduler = await stage.scheduler()
    async with open_channel(scheduler.address) as channel:
        stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            await stub.AnnounceWorker(scheduler_pb2.AnnounceWorkerRequest(worker_id="w1"))
    error = from_rpc_error(refused.value)
    assert isinstance(error, InvalidField)
    assert error.field == "address"


async def test_the_card_names_models_programs_and_measured_costs(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    worker.script.step_seconds = 0.01
    await stage.submit("r1", steps=3)
    await stage.ended("r1")
    async with open_channel(scheduler.address) as channel:
        stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
        card = (await stub.GetDeploymentCard(scheduler_pb2.GetDeploymentCardRequest())).card
    assert list(card.model_specs) == ["moving-digits"]
    assert "text_to_video" in card.supported_programs
    assert "text_to_video" in card.capabilities.capabilities
    (pool,) = card.role_pools
    assert (pool.replicas, list(pool.models)) == (1, ["moving-digits"])
    costs = {entry.phase: entry for entry in card.cost_model.entries}
    assert costs["denoise"].seconds == pytest.approx(0.01)
    assert costs["denoise"].samples == 3
    assert costs["request/text_to_video"].seconds > 0.03


async def test_health_and_reflection_answer(stage: Stage):
    scheduler = await stage.scheduler()
    async with open_channel(scheduler.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[arg-type]
        call = stub.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        )
        services = [s.name async for r in call for s in r.list_services_response.service]
    assert "fastvideo.scheduler.v1.SchedulerService" in services


async def test_the_trace_goes_from_the_accepted_event_to_the_worker(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    parent = f"00-{TRACE_ID}-b7ad6b7169203331-01"
    await stage.submit("r1", steps=2, traceparent=parent)
    await stage.ended("r1")
    told = [c.traceparent for _, c in worker.prepared] + [c.traceparent for _, c in worker.batches]
    assert told
    assert {t.split("-")[1] for t in told} == {TRACE_ID}
    metadata = [e.metadata for e in (await stage.history("r1"))[1:]]
    assert {m.traceparent.split("-")[1] for m in metadata} == {TRACE_ID}
    assert {m.model_id for m in metadata} == {"moving-digits"}
    assert all(m.causation_id for m in metadata)


async def test_a_process_that_is_not_the_one_that_announced_itself_is_not_attached(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    imposed = scheduler_pb2.AnnounceWorkerRequest(
        worker_id="w2", address=worker._server.address, incarnation="another"
    )
    async with open_channel(scheduler.address) as channel:
        stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
        await stub.AnnounceWorker(imposed)
        await until(lambda: len(worker.epochs) >= 2)
    await until(
        lambda: [link.worker.worker_id for link in scheduler.shard.leader.fleet.links] == ["w1"]
    )
    assert [view.worker_id for view in scheduler.shard.leader.core.workers] == ["w1"]
