"""Every operation of WorkerService, called from another process."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import torch
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fastvideo import wire
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.cache.keys import key_digest, text_hash
from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import AlreadyExists, FailedPrecondition, Fenced, InvalidField, NotFound
from fastvideo.media.tensors import decode_tensors, encode_tensors
from fastvideo.model.caching import CacheClass, CacheKey, CacheRecord
from fastvideo.model.transfers import TransferManifest, TransferTensor
from fastvideo.models.wan.keys import text_features_key
from fastvideo.requests.types import RequestSpec, TextPart
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.scheduling.commands import ExecuteBatch, PrepareLoop
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import (
    CancelScope,
    CancelScopeKind,
    LoopRef,
    StepResult,
    WorkPlan,
)

MakeSpec = Callable[..., RequestSpec]
pytestmark = pytest.mark.row("SCH-21")


class Operations:
    """The unary operations of one worker, at one epoch."""

    def __init__(self, stub: Any, epoch: int) -> None:
        self.stub = stub
        self.epoch = epoch

    async def call(self, name: str, **fields: Any) -> Any:
        request = getattr(worker_pb2, f"{name}Request")(**fields)
        try:
            return await getattr(self.stub, name)(request, timeout=30)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def instance_id(self) -> str:
        health = await self.call("Health")
        found: str = health.instances[0].model_instance_id
        return found

    async def prepare(self, spec: RequestSpec, node_id: str, **inputs: str) -> WorkPlan:
        command = PrepareLoop(
            loop=LoopRef(request_id=spec.request_id, node_id=node_id, attempt=1),
            loop_id=node_id,
            model_instance_id=await self.instance_id(),
            request=spec,
            inputs=inputs,
        )
        response = await self.call("PrepareLoop", epoch=self.epoch, loop=wire.to_proto(command))
        return wire.from_proto(WorkPlan, response.plan)

    async def execute(self, plan: WorkPlan) -> StepResult:
        batch = ExecuteBatch(
            batch_id="b",
            kind=plan.units[0].kind,
            unit_ids=tuple(unit.unit_id for unit in plan.units),
        )
        request = worker_pb2.ExecuteWorkRequest(epoch=self.epoch, batch=wire.to_proto(batch))
        call = self.stub.ExecuteWork(iter([request]), timeout=30)
        [response] = [response async for response in call]
        return wire.from_proto(BatchExecuted, response.result).results[0]

    async def run(self, spec: RequestSpec, node_id: str, **inputs: str) -> list[StepResult]:
        plan: WorkPlan | None = await self.prepare(spec, node_id, **inputs)
        results = []
        while plan is not None:
            result = await self.execute(plan)
            assert result.error is None, result.error
            results.append(result)
            plan = result.next_plan
        return results

    async def cancel(self, request_id: str) -> list[str]:
        scope = CancelScope(kind=CancelScopeKind.REQUEST, target_id=request_id)
        response = await self.call("Cancel", epoch=self.epoch, scope=wire.to_proto(scope))
        return [loop.node_id for loop in response.loops]


@pytest.fixture
async def operations(worker: Any, epoch: int) -> AsyncIterator[Operations]:
    async with open_channel(worker.address) as channel:
        yield Operations(worker_pb2_grpc.WorkerServiceStub(channel), epoch)


async def test_a_loop_is_prepared_and_executed(operations: Operations, make_spec: MakeSpec) -> None:
    results = await operations.run(make_spec("unary"), "encode")
    assert [result.state_version for result in results] == [1, 2]
    assert results[-1].loop_result is not None
    assert results[-1].loop_result.value_names == ("text_features",)


async def test_an_older_epoch_is_refused_by_every_command(
    operations: Operations, make_spec: MakeSpec
) -> None:
    await operations.cancel("nobody")
    older = Operations(operations.stub, operations.epoch - 1)
    with pytest.raises(Fenced):
        await older.prepare(make_spec("late"), "encode")
    with pytest.raises(Fenced):
        await older.cancel("nobody")


async def test_a_loop_that_cannot_be_prepared_says_why(
    operations: Operations, make_spec: MakeSpec
) -> None:
    with pytest.raises(FailedPrecondition) as caught:
        await operations.prepare(make_spec("early"), "decode", latents="denoise.latents")
    assert caught.value.reason == "VALUE_MISSING"


async def test_cancel_frees_a_waiting_loop_at_once_and_a_running_one_at_its_boundary(
    operations: Operations, make_spec: MakeSpec
) -> None:
    await operations.prepare(make_spec("waiting"), "encode")
    assert await operations.cancel("waiting") == ["encode"]

    spec = make_spec("running", width=192, height=192, num_frames=33, steps=4)
    await operations.run(spec, "encode")
    plan = await operations.prepare(spec, "denoise", text_features="encode.text_features")
    step = asyncio.create_task(operations.execute(plan))
    await asyncio.sleep(0.1)
    assert await operations.cancel("running") == ["denoise"]
    health = await operations.call("Health")
    assert health.loops == 0
    result = await step
    assert result.error is not None
    assert result.error.reason == "LOOP_RELEASED"


async def test_values_travel_out_and_in(operations: Operations, make_spec: MakeSpec) -> None:
    spec = make_spec("traveller", steps=1)
    await operations.run(spec, "encode")
    name = "encode.text_features"
    asked = TransferManifest(
        transfer_id="t1",
        tensors=(TransferTensor(name=name),),
        producer_id="traveller/1",
        consumer_id="arrived/1",
        lifetime="request",
    )
    response = await operations.call("Transfer", manifest=wire.to_proto(asked))
    manifest = wire.from_proto(TransferManifest, response.manifest)
    [tensor] = manifest.tensors
    assert (tensor.shape, tensor.dtype, tensor.strides) == ((2, 32, 64), "float32", (2048, 64, 1))
    features = decode_tensors(response.payload)[name]
    assert tuple(features.shape) == (2, 32, 64)

    # The same values under another request give the same bits.
    await operations.call("Transfer", manifest=response.manifest, payload=response.payload)
    here = await operations.run(spec, "denoise", text_features=name)
    there = await operations.run(make_spec("arrived", steps=1), "denoise", text_features=name)
    assert here[-1].state_digest == there[-1].state_digest
    for request_id in ("traveller", "arrived"):
        await operations.cancel(request_id)


@pytest.mark.row("VAL-07")
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"consumer_id": "nobody"}, "manifest.consumer_id"),
        ({"lifetime": "session"}, "manifest.lifetime"),
        ({"tensors": ()}, "manifest.tensors"),
        ({"tensors": (TransferTensor(name="x", shape=(3,), dtype="float32"),)}, "payload.x"),
        ({"tensors": (TransferTensor(name="y", shape=(2,), dtype="float32"),)}, "payload"),
        ({"lifetime": "for ever"}, "manifest.lifetime"),
        ({"tensors": (TransferTensor(shape=(2,), dtype="float32"),)}, "manifest.tensors.name"),
        (
            {"tensors": (TransferTensor(name="x", shape=(2,), dtype="float31"),)},
            "manifest.tensors.x.dtype",
        ),
        (
            {"tensors": (TransferTensor(name="x", shape=(2,), dtype="float32", strides=(1, 1)),)},
            "manifest.tensors.x.strides",
        ),
        ({"cache_key": CacheKey(model_id="m")}, "manifest.cache_key.component_id"),
    ],
)
async def test_a_payload_that_is_not_what_its_manifest_says_is_refused(
    operations: Operations, changes: dict[str, Any], field: str
) -> None:
    sound: dict[str, Any] = {
        "consumer_id": "r/1",
        "lifetime": "request",
        "tensors": (TransferTensor(name="x", shape=(2,), dtype="float32"),),
    }
    manifest = TransferManifest(**sound | changes)
    with pytest.raises(InvalidField) as caught:
        await operations.call(
            "Transfer",
            manifest=wire.to_proto(manifest),
            payload=encode_tensors({"x": torch.zeros(2)}),
        )
    assert caught.value.field == field


async def test_a_published_value_is_what_a_loop_then_finds(
    operations: Operations, make_spec: MakeSpec
) -> None:
    spec = make_spec("reader", prompt="a green five moving down")
    await operations.call("Sleep", tags=["caches"])
    plan = await operations.prepare(spec, "encode")
    first = await operations.execute(plan)
    assert [lookup.outcome for lookup in first.cache_lookups] == ["miss"]
    digest = first.cache_lookups[0].key_digest
    key = _prompt_key(spec, await operations.call("Health"))
    value = encode_tensors({"value": torch.full((32, 64), 0.5)})
    record = CacheRecord(
        key=key,
        key_digest=key_digest(key),
        cache_class=CacheClass.TEXT_ENCODER_OUTPUT,
        value_digest=hashlib.sha256(value).hexdigest(),
        size_bytes=len(value),
    )
    assert record.key_digest == digest
    published = await operations.call("PublishCache", record=wire.to_proto(record), value=value)
    assert published.stored
    again = await operations.run(make_spec("again", prompt="a green five moving down"), "encode")
    assert [lookup.outcome for lookup in again[0].cache_lookups] == ["hit"]
    assert again[0].state_digest != first.state_digest
    await operations.call("Sleep", tags=["caches"])
    await operations.call("Wake", tags=["caches"])


@pytest.mark.row("VAL-07")
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"key_digest": "0" * 64}, "record.key_digest"),
        ({"value_digest": ""}, "record.value_digest"),
        ({"value_digest": "0" * 64}, "record.value_digest"),
        ({"cache_class": CacheClass.TOKEN_KV}, "record.cache_class"),
        ({"tier": "cloud"}, "record.tier"),
        ({"key": {"component_id": ""}}, "record.key.component_id"),
        ({"key": {"weights_version": ""}}, "record.key.weights_version"),
        ({"key": {"input_hashes": {}}}, "record.key.input_hashes"),
        ({"key": {"cache_contract_version": ""}}, "record.key.cache_contract_version"),
    ],
)
async def test_a_cache_record_that_is_not_of_its_schema_is_refused(
    operations: Operations, changes: dict[str, Any], field: str
) -> None:
    sound = CacheKey(
        model_id="moving-digits",
        component_id="text_encoder",
        weights_version="w1",
        input_hashes={"text": text_hash("a red three")},
        cache_contract_version="1",
    )
    key = replace(sound, **changes.get("key", {}))
    value = encode_tensors({"value": torch.zeros(1)})
    record = CacheRecord(
        key=key,
        key_digest=key_digest(key),
        cache_class=CacheClass.TEXT_ENCODER_OUTPUT,
        value_digest=hashlib.sha256(value).hexdigest(),
        size_bytes=len(value),
    )
    record = replace(record, **{k: v for k, v in changes.items() if k != "key"})
    with pytest.raises(InvalidField) as caught:
        await operations.call("PublishCache", record=wire.to_proto(record), value=value)
    assert caught.value.field == field


async def test_sleeping_weights_are_gone_and_a_loop_that_comes_then_is_told_so(
    operations: Operations, make_spec: MakeSpec, worker: Any
) -> None:
    before = (await operations.run(make_spec("awake"), "encode"))[-1].state_digest
    weights = (await operations.call("Health")).memory_bytes["weights"]
    await operations.cancel("awake")
    slept = await operations.call("Sleep")
    assert slept.freed_bytes >= weights
    health = await operations.call("Health")
    assert not health.ready
    assert list(health.sleeping_tags) == ["activations", "caches", "weights"]
    assert health.memory_bytes["weights"] == 0
    with pytest.raises(FailedPrecondition) as caught:
        await operations.prepare(make_spec("dreaming"), "encode")
    assert caught.value.reason == "WEIGHTS_ASLEEP"
    woken = await operations.call("Wake")
    assert woken.restored_bytes == weights
    assert (await operations.call("Health")).ready
    after = (await operations.run(make_spec("awake-again"), "encode"))[-1].state_digest
    assert after == before


async def test_a_tag_that_cannot_sleep_is_refused(operations: Operations) -> None:
    with pytest.raises(InvalidField, match="staging"):
        await operations.call("Sleep", tags=["staging"])


async def test_a_model_is_unloaded_and_loaded_again(operations: Operations) -> None:
    instance_id = await operations.instance_id()
    with pytest.raises(AlreadyExists):
        await operations.call("LoadModel", model_id="moving-digits")
    with pytest.raises(NotFound):
        await operations.call("LoadModel", model_id="no-such-model")
    freed = await operations.call("UnloadModel", model_instance_id=instance_id)
    assert freed.freed_bytes > 15_000_000
    health = await operations.call("Health")
    assert not health.instances
    assert health.memory_bytes["weights"] == 0
    loaded = await operations.call("LoadModel", model_id="moving-digits")
    assert loaded.state.model_instance_id == instance_id
    with pytest.raises(NotFound):
        await operations.call("UnloadModel", model_instance_id="nobody")


async def test_an_attached_scheduler_is_made_to_attach_anew_when_the_models_change(
    operations: Operations, attach: Callable[..., Any]
) -> None:
    async with attach() as client:
        await operations.call("UnloadModel", model_instance_id=await operations.instance_id())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.next(BatchExecuted)
    assert from_rpc_error(caught.value).reason == "MODELS_CHANGED"
    await operations.call("LoadModel", model_id="moving-digits")


async def test_reflection_lists_the_service(worker: Any) -> None:
    async with open_channel(worker.address) as channel:
        make_stub: Any = reflection_pb2_grpc.ServerReflectionStub
        stub = make_stub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        [answer] = [answer async for answer in stub.ServerReflectionInfo(iter([request]))]
    names = {service.name for service in answer.list_services_response.service}
    assert {"fastvideo.worker.v1.WorkerService", "grpc.health.v1.Health"} <= names


def _prompt_key(spec: RequestSpec, health: Any) -> CacheKey:
    """The key of the prompt's features, built from what the worker says of itself."""
    [state] = health.instances
    entry = Catalog.load(["moving-digits"]).get("moving-digits")
    resident: Any = SimpleNamespace(
        model_instance_id=state.model_instance_id,
        card=entry.card,
        weights_version=state.weights_version,
        precision=state.precision,
        adapter_versions={},
        parallel_plan_hash=state.parallel_plan_hash,
    )
    prompt = next(
        part.text for part in spec.inputs if isinstance(part, TextPart) and part.role == "prompt"
    )
    return text_features_key(resident, prompt, entry.card.processors["text"].max_tokens)
