"""A prompt becomes files over the scheduler's stream, with the bits of an in-process run."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.cache.features import TextFeatureCache
from fastvideo.clock import SystemClock
from fastvideo.deployment.catalog import Catalog, CatalogEntry
from fastvideo.engine.artifact_writer import LOOP_ID, ArtifactWriter
from fastvideo.engine.budgets import machine_bytes, pool_budgets
from fastvideo.engine.executor import Executor
from fastvideo.engine.loading import CatalogLoader, quiet_libraries
from fastvideo.engine.residents import Residents
from fastvideo.engine.sink import LocalArtifacts
from fastvideo.engine.solo import SoloRun, run_solo
from fastvideo.media.tensors import decode_tensors
from fastvideo.media.video import probe_mp4
from fastvideo.memory.pools import MemoryPools
from fastvideo.requests.draft import RequestDraft
from fastvideo.requests.types import LatentPart, OutputSpec, RequestKind, RequestSpec
from fastvideo.requests.validation import resolve_request
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import UnitKind

MakeSpec = Callable[..., RequestSpec]
Attach = Callable[..., Any]
RunSolo = Callable[[RequestSpec], SoloRun]


@pytest.fixture(scope="module")
def run_in_process(entry: CatalogEntry) -> RunSolo:
    """Runs a request alone in this process, on the same code."""
    quiet_libraries()
    clock = SystemClock()
    pools = MemoryPools(pool_budgets(machine_bytes()))
    writer = ArtifactWriter(LocalArtifacts(clock), "here", {})
    loader = CatalogLoader(Catalog.load(), "here")
    residents = Residents(pools, loader, {LOOP_ID: writer})
    instance = residents.load("moving-digits")
    executor = Executor(
        worker_id="here",
        pools=pools,
        residents=residents,
        features=TextFeatureCache(10_000_000),
        clock=clock,
    )

    def run(spec: RequestSpec) -> SoloRun:
        program = entry.programs[spec.program_id]
        return run_solo(executor, instance.model_instance_id, program, spec)

    return run


@pytest.mark.row("WUK-03", "WUK-05", "WUK-06", "WUK-12")
async def test_a_prompt_becomes_a_video_by_units_with_the_bits_of_an_in_process_run(
    attach: Attach,
    driver: Any,
    entry: CatalogEntry,
    make_spec: MakeSpec,
    surroundings: Any,
    run_in_process: RunSolo,
) -> None:
    outputs = OutputSpec(video=True, sheet=True, latents=True)
    spec = make_spec("whole", outputs=outputs)
    async with attach() as client:
        driven = await driver(client, entry, spec).run()
    kinds = [batch.kind for batch in driven.batches]
    assert kinds.count(UnitKind.ENCODER_CHUNK) == 2
    assert kinds.count(UnitKind.DIFFUSION_STEP) == spec.sampling.steps
    assert kinds.count(UnitKind.VAE_TILE) == 3
    assert kinds.count(UnitKind.ARTIFACT_WRITE) == 3

    alone = run_in_process(spec)
    assert driven.results["denoise"].digests["latents"] == alone.latents_digest
    digests = [result.state_digest for batch in driven.batches for result in batch.results]
    expected = [result.state_digest for batch in alone.batches for result in batch.results]
    assert digests[:-3] == expected[:-3]

    files = [surroundings.artifacts.stored[id_] for id_ in driven.results["write"].artifact_ids]
    assert [header.name for header, _ in files] == [
        "video.mp4",
        "sheet.png",
        "latents.safetensors",
    ]
    header, video = files[0]
    probe = probe_mp4(video)
    assert (probe.width, probe.height, probe.frames, probe.fps) == (48, 48, 9, 8.0)
    assert (header.media.codec, header.producer.request_id) == ("h264", "whole")
    latents = decode_tensors(files[2][1])["latents"]
    assert tuple(latents.shape) == (1, 8, 3, 6, 6)


async def test_units_of_two_requests_share_a_batch_with_the_bits_of_solo_runs(
    attach: Attach,
    driver: Any,
    entry: CatalogEntry,
    make_spec: MakeSpec,
    run_in_process: RunSolo,
) -> None:
    specs = [
        make_spec("left", steps=3, seed=1),
        make_spec("right", prompt="a blue seven moving up", steps=2, seed=2),
    ]
    async with attach() as client:
        plans = [await driver(client, entry, spec).until("denoise") for spec in specs]
        digests: dict[str, str] = {}
        while plans:
            executed = await client.execute(*plans)
            for result in executed.results:
                assert result.error is None, result.error
                if result.loop_result is not None:
                    digests[result.loop.request_id] = result.loop_result.digests["latents"]
            plans = [result.next_plan for result in executed.results if result.next_plan]
    for spec in specs:
        assert digests[spec.request_id] == run_in_process(spec).latents_digest


async def test_an_artifact_service_that_is_away_for_a_moment_loses_nothing(
    attach: Attach, driver: Any, entry: CatalogEntry, make_spec: MakeSpec, surroundings: Any
) -> None:
    surroundings.artifacts.away_calls = 2
    async with attach() as client:
        driven = await driver(client, entry, make_spec("patient", steps=1)).run()
    [artifact_id] = driven.results["write"].artifact_ids
    assert artifact_id in surroundings.artifacts.stored


@pytest.mark.row("WUK-12")
async def test_steps_go_on_while_a_file_is_on_its_way(
    attach: Attach, driver: Any, entry: CatalogEntry, make_spec: MakeSpec, surroundings: Any
) -> None:
    async with attach() as client:
        writing = await driver(client, entry, make_spec("writes", steps=1)).until("write")
        plan = await driver(client, entry, make_spec("steps", steps=3)).until("denoise")
        surroundings.artifacts.may_go_on.clear()
        try:
            await client.dispatch(writing, batch_id="file")
            while plan is not None:
                executed = await client.execute(plan, batch_id="step")
                assert executed.batch_id == "step"
                plan = executed.results[0].next_plan
        finally:
            surroundings.artifacts.may_go_on.set()
        written = await client.next(BatchExecuted)
        assert (written.batch_id, written.results[0].error) == ("file", None)
        for name in ("writes", "steps"):
            await client.release(name)


async def test_artifact_bytes_go_in_bounded_chunks(surroundings: Any) -> None:
    assert max(surroundings.artifacts.chunk_sizes, default=0) <= 256 * 1024


@pytest.mark.row("REQ-15")
async def test_after_an_ok_a_failed_and_a_cancelled_request_nothing_is_held(
    attach: Attach, driver: Any, entry: CatalogEntry, make_spec: MakeSpec, surroundings: Any
) -> None:
    async with attach() as client:
        before = await _held(client)
        await driver(client, entry, make_spec("ok", steps=1)).run()
        await driver(client, entry, make_spec("stopped")).until("denoise")
        await client.release("stopped")
        plan = await driver(client, entry, make_spec("failed", steps=1)).until("write")
        surroundings.artifacts.is_broken = True
        executed = await client.execute(plan)
        surroundings.artifacts.is_broken = False
        assert executed.results[0].error is not None
        assert executed.results[0].error.reason == "FAILED_PRECONDITION"
        await client.release("failed")
        assert await _held(client) == before


async def test_stored_latents_are_decoded_to_the_frames_that_they_came_from(
    attach: Attach, driver: Any, entry: CatalogEntry, make_spec: MakeSpec
) -> None:
    outputs = OutputSpec(video=True, latents=True)
    async with attach() as client:
        made = await driver(client, entry, make_spec("maker", steps=2, outputs=outputs)).run()
        conversion = resolve_request(
            RequestDraft(
                model_id="moving-digits",
                kind=RequestKind.CONVERSION,
                inputs=(
                    LatentPart(role="latents", artifact_id=made.results["write"].artifact_ids[1]),
                ),
            ),
            entry,
            request_id="converter",
            tenant_id="",
            random_seed=1,
            now=datetime.now(UTC),
        )
        decoded = await driver(client, entry, conversion).run()
    frames = made.results["decode"].digests["frames"]
    assert decoded.results["decode"].digests["frames"] == frames


async def _held(client: Any) -> dict[str, int]:
    """Loops and bytes by pool, without the caches, which outlive requests."""
    deadline_s = asyncio.get_running_loop().time() + 30
    while True:
        health = await client.stub.Health(worker_pb2.HealthRequest(), timeout=60)
        if health.loops == 0 or asyncio.get_running_loop().time() > deadline_s:
            pools = {tag: size for tag, size in health.memory_bytes.items() if tag != "caches"}
            return {**pools, "loops": health.loops}
        await asyncio.sleep(0.02)
