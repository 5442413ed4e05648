"""A worker's weights and caches sleep and wake, and weights that changed meanwhile."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from safetensors.torch import load_file, save_file

from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.errors import CheckpointError, FailedPrecondition
from fastvideo.model.caching import CacheOutcome
from fastvideo.model.manifest import build_manifest, write_manifest
from fastvideo.requests.types import RequestSpec
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import StepResult
from tests.integration.worker.memory_calls import calls_of, stop

MakeSpec = Callable[..., RequestSpec]

# Of the weights, what must go back to the system; the rest is left to its bookkeeping.
FREED_SHARE_MIN = 0.7


@pytest.fixture(scope="module")
def own_checkpoints(tmp_path_factory: pytest.TempPathFactory, entry: CatalogEntry) -> Path:
    """A folder of checkpoints that a test may change."""
    folder = tmp_path_factory.mktemp("checkpoints")
    assert entry.checkpoint_path is not None
    shutil.copytree(entry.checkpoint_path, folder / entry.checkpoint_path.name)
    return folder


@pytest.fixture(scope="module")
def own_worker(start_worker: Any, own_checkpoints: Path) -> Iterator[Any]:
    """A worker that no other module shares."""
    worker = start_worker(
        "worker-memory",
        {"FASTVIDEO_CHECKPOINTS": str(own_checkpoints), "FASTVIDEO_KEEP_LOOPS_S": "0"},
    )
    yield worker
    stop(worker)


def change_weights(folder: Path, factor: float) -> None:
    """As training does: other values in the same shapes, and a manifest that says so."""
    file = folder / "transformer" / "diffusion_pytorch_model.safetensors"
    tensors = load_file(file)
    save_file({name: tensor * factor for name, tensor in tensors.items()}, file)
    encoder = folder / "text_encoder" / "model.safetensors"
    texts = load_file(encoder)
    save_file({name: tensor * factor for name, tensor in texts.items()}, encoder)
    write_manifest(folder, build_manifest(folder))


Generated = tuple[str, list[StepResult]]
Generate = Callable[[str], Any]


@pytest.fixture
def generate(
    own_worker: Any,
    client_type: Any,
    driver: Any,
    entry: CatalogEntry,
    make_spec: MakeSpec,
    epoch: int,
) -> Callable[[str], Any]:
    """Attaches, runs one request alone, and gives the latents' digest and every result."""

    async def run(request_id: str) -> Generated:
        async with client_type(own_worker.address, epoch) as client:
            driven = await driver(client, entry, make_spec(request_id)).run()
        async with calls_of(own_worker) as calls:
            await calls.until_idle()
        results = [result for batch in driven.batches for result in batch.results]
        return driven.results["denoise"].digests["latents"], results

    return run


def outcomes(results: list[StepResult]) -> list[CacheOutcome]:
    return [look.outcome for result in results for look in result.cache_lookups]


@pytest.mark.row("MEM-02")
async def test_sleep_gives_memory_back_to_the_system_and_wake_the_same_outputs(
    own_worker: Any, generate: Generate
) -> None:
    before, _ = await generate("awake")
    process = psutil.Process(own_worker.process.pid)
    async with calls_of(own_worker) as calls:
        # What the first requests left in the allocator is not what is measured.
        await calls.call("Sleep", tags=["activations"])
        await calls.call("Wake", tags=["activations"])
        weights, resident = await calls.memory("weights"), process.memory_info().rss
        slept = await calls.call("Sleep", tags=["weights"])
        freed = resident - process.memory_info().rss
        health = await calls.call("Health")
        assert slept.freed_bytes == weights
        assert freed >= FREED_SHARE_MIN * weights
        assert health.memory_bytes["weights"] == 0
        assert abs(health.process_bytes - process.memory_info().rss) < 8 << 20
        assert not health.ready
        woken = await calls.call("Wake", tags=["weights"])
        assert woken.restored_bytes == weights
        assert (await calls.call("Health")).ready
    after, _ = await generate("awake-again")
    assert after == before


async def test_caches_sleep_at_any_time_and_change_no_outputs(
    own_worker: Any, generate: Generate
) -> None:
    before, _ = await generate("cached")
    _, results = await generate("cached-again")
    assert CacheOutcome.HIT in outcomes(results)
    async with calls_of(own_worker) as calls:
        held = await calls.memory("caches")
        slept = await calls.call("Sleep", tags=["caches"])
        assert slept.freed_bytes == held > 0
        assert await calls.memory("caches") == 0
        await calls.call("Wake", tags=["caches"])
    after, results = await generate("uncached")
    assert after == before
    assert CacheOutcome.HIT not in outcomes(results)


async def test_a_worker_with_requests_does_not_sleep_and_they_go_on(
    own_worker: Any,
    client_type: Any,
    driver: Any,
    entry: CatalogEntry,
    make_spec: MakeSpec,
    generate: Generate,
    epoch: int,
) -> None:
    expected, _ = await generate("alone")
    async with (
        calls_of(own_worker) as calls,
        client_type(own_worker.address, epoch) as client,
    ):
        running = driver(client, entry, make_spec("running"))
        plan = await running.until("denoise")
        for tags in (["weights"], ["activations"], []):
            with pytest.raises(FailedPrecondition) as caught:
                await calls.call("Sleep", tags=tags)
            assert caught.value.reason == "REQUESTS_RUNNING"
        while True:
            [result] = (await client.execute(plan)).results
            assert result.error is None, result.error
            if result.loop_result is not None:
                break
            plan = result.next_plan
        assert result.loop_result.digests["latents"] == expected
        await client.release("running")


async def test_a_scheduler_is_sent_away_while_the_weights_sleep_and_comes_back_after(
    own_worker: Any, client_type: Any, generate: Generate, epoch: int
) -> None:
    expected, _ = await generate("before")
    async with calls_of(own_worker) as calls:
        async with client_type(own_worker.address, epoch) as client:
            await calls.call("Sleep", tags=["weights"])
            with pytest.raises(grpc.aio.AioRpcError):
                await client.next(BatchExecuted)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with client_type(own_worker.address, epoch):
                pass
        assert from_rpc_error(caught.value).reason == "ASLEEP"
        await calls.call("Wake", tags=["weights"])
    after, _ = await generate("after")
    assert after == expected


async def test_weights_that_were_changed_on_purpose_take_the_place_of_those_that_sleep(
    own_worker: Any,
    own_checkpoints: Path,
    generate: Generate,
    tmp_path: Path,
    entry: CatalogEntry,
) -> None:
    old, _ = await generate("old")
    folder = tmp_path / "trained"
    shutil.copytree(own_checkpoints / entry.card.checkpoint, folder)
    change_weights(folder, 1.01)
    async with calls_of(own_worker) as calls:
        [instance] = (await calls.call("Health")).instances
        await calls.call("Sleep", tags=["weights"])
        loaded = await calls.call("LoadModel", model_id=entry.card.model_id, checkpoint=str(folder))
        await calls.call("Wake")
        health = await calls.call("Health")
        assert [state.weights_version for state in health.instances] == [
            loaded.state.weights_version
        ]
        assert loaded.state.weights_version != instance.weights_version
        assert health.ready
        new, results = await generate("new")
        assert new != old
        # The prompt is the old one; features of the old encoder are none for the new.
        assert CacheOutcome.HIT not in outcomes(results)
        # Back to the old ones: the same bits as ever.
        await calls.call("UnloadModel", model_instance_id=health.instances[0].model_instance_id)
        await calls.call("LoadModel", model_id=entry.card.model_id)
    again, _ = await generate("old-again")
    assert again == old


@pytest.mark.slow
async def test_weights_that_changed_in_their_place_do_not_wake_unasked(
    start_worker: Any,
    own_checkpoints: Path,
    tmp_path: Path,
    entry: CatalogEntry,
    client_type: Any,
    driver: Any,
    make_spec: MakeSpec,
    epoch: int,
) -> None:
    shutil.copytree(own_checkpoints, tmp_path / "checkpoints")
    folder = tmp_path / "checkpoints" / entry.card.checkpoint
    worker = start_worker(
        "worker-changed", {"FASTVIDEO_CHECKPOINTS": str(tmp_path / "checkpoints")}
    )
    async with calls_of(worker) as calls:
        await calls.call("Sleep", tags=["weights"])
        change_weights(folder, 1.02)
        with pytest.raises(FailedPrecondition, match="other weights now") as caught:
            await calls.call("Wake")
        assert caught.value.reason == CheckpointError.default_reason
        health = await calls.call("Health")
        assert not health.ready
        # Asked for, they come.
        loaded = await calls.call("LoadModel", model_id=entry.card.model_id)
        await calls.call("Wake")
        health = await calls.call("Health")
        assert health.ready
        [state] = health.instances
        assert state.weights_version == loaded.state.weights_version
    async with client_type(worker.address, epoch) as client:
        driven = await driver(client, entry, make_spec("changed")).run()
    assert driven.results["denoise"].digests["latents"]
    stop(worker)
