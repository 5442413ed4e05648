"""P9, the worker's part: what saving a loop costs the steps beside it, and how fast it resumes.

Blobs go to a folder, written through to the disk, as the service of artifacts does it.
"""

import asyncio
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from measurement import Measurement, interleave

from fastvideo.blobs import open_blobs
from fastvideo.cache.features import TextFeatureCache
from fastvideo.clock import SystemClock
from fastvideo.deployment.catalog import Catalog
from fastvideo.engine.budgets import machine_bytes, pool_budgets
from fastvideo.engine.executor import Executor
from fastvideo.engine.loading import CatalogLoader, quiet_libraries
from fastvideo.engine.residents import Residents
from fastvideo.engine.startup import start_models
from fastvideo.memory.pools import MemoryPools, MemoryTag
from fastvideo.requests.types import (
    OutputSpec,
    RequestKind,
    RequestSpec,
    SamplingParams,
    TextPart,
)
from fastvideo.scheduling.commands import ExecuteBatch, PrepareLoop, ReleaseLoops, SnapshotLoops
from fastvideo.scheduling.events import LoopPrepared, RequestSnapshotted
from fastvideo.scheduling.work import LoopRef, WorkPlan

IDS = ("P9",)
MODEL = "moving-digits"
STEPS = 20
ROUNDS = 9


class Folder:
    """A shelf over a folder."""

    def __init__(self, folder: Path) -> None:
        self._blobs = open_blobs(folder.as_uri())

    def put_blob(self, data: bytes) -> str:
        async def chunks() -> AsyncIterator[bytes]:
            yield data

        async def put() -> str:
            return (await self._blobs.put(chunks())).digest

        return asyncio.run(put())

    def get_blob(self, digest: str, size_bytes: int) -> bytes:
        async def get() -> bytes:
            return b"".join([chunk async for chunk in self._blobs.read(digest)])

        return asyncio.run(get())


def measure() -> list[Measurement]:
    """Windows of the denoising loop, with and without a snapshot of each of their steps."""
    with tempfile.TemporaryDirectory() as folder:
        bench = _Bench(Path(folder))
        alone, saved = interleave([bench.window, bench.window_saved], ROUNDS)
        # A snapshot a window, as the scheduler would at most ask for.
        overhead = (saved - alone) / alone / max(1, bench.snapshots_per_window)
        step = alone / STEPS
        resume = min(bench.resume() for _ in range(ROUNDS))
    return [
        Measurement(
            id="P9",
            what="a snapshot beside a running window of 20 steps: what the window takes longer",
            value=saved / bench.snapshots_per_window - alone / bench.snapshots_per_window,
            unit="s",
            peer=step,
            peer_name="one step",
            goal="<= 2 % of the window",
            met=overhead <= 0.02,
            note=f"{bench.snapshots_per_window:.0f} snapshots a window were taken without a pause; "
            f"one costs {100 * overhead:.2f} % of it and is {bench.size_bytes} bytes",
            details={"overhead": overhead, "size_bytes": bench.size_bytes},
        ),
        Measurement(
            id="P9",
            what="a loop made again from its snapshot: fetched, read, checked, planned",
            value=resume,
            unit="s",
            peer=step,
            peer_name="one step",
            goal="within 2 s of the loss",
            met=resume <= 2.0,
        ),
    ]


class _Bench:
    def __init__(self, folder: Path) -> None:
        quiet_libraries()
        pools = MemoryPools(pool_budgets(machine_bytes()))
        catalog = Catalog.load([MODEL])
        residents = Residents(pools, CatalogLoader(catalog, "bench"))
        self._executor = Executor(
            worker_id="bench",
            pools=pools,
            residents=residents,
            features=TextFeatureCache(pools.budgets_bytes[MemoryTag.CACHES]),
            clock=SystemClock(),
            shelf=Folder(folder),
        )
        start_models(catalog, residents, self._executor, [MODEL], 1)
        [instance] = residents.all()
        self._instance_id = instance.model_instance_id
        self._number = 0
        self.size_bytes = 0
        self._taken: list[int] = []

    @property
    def snapshots_per_window(self) -> float:
        """How many were taken in a window, at the median."""
        return sorted(self._taken)[len(self._taken) // 2]

    def window(self) -> None:
        """Twenty steps of one request in one window."""
        plan = self._prepared()
        self._run(plan)

    def window_saved(self) -> None:
        """The same, saved over and over beside it."""
        plan = self._prepared()
        done = threading.Event()
        taken = []

        def save() -> None:
            while not done.is_set():
                taken.append(self._snapshot(plan.loop.request_id))
                # The next boundary: one that is saved already is not saved again.
                done.wait(0.005)

        saver = threading.Thread(target=save)
        saver.start()
        self._run(plan)
        done.set()
        saver.join()
        digests = {s.digest for event in taken for s in event.snapshots if not s.ended}
        self._taken.append(len(digests))

    def resume(self) -> float:
        """Seconds from the command to the plan."""
        plan = self._prepared()
        self._execute(plan, 5)
        event = self._snapshot(plan.loop.request_id, release=True)
        [saved] = [snapshot for snapshot in event.snapshots if not snapshot.ended]
        self.size_bytes = saved.size_bytes
        command = replace(
            self._command(plan.loop.request_id, "denoise"),
            loop=replace(plan.loop, attempt=2),
            restore=saved,
        )
        started_s = time.perf_counter()
        prepared = self._executor.prepare(command, self._executor.fetch(saved))
        seconds = time.perf_counter() - started_s
        assert isinstance(prepared, LoopPrepared), prepared
        self._executor.release(ReleaseLoops(request_id=plan.loop.request_id, attempt=2))
        return seconds

    def _prepared(self) -> WorkPlan:
        self._number += 1
        request_id = f"r{self._number}"
        encode = self._executor.prepare(self._command(request_id, "encode"))
        assert isinstance(encode, LoopPrepared), encode
        plan: WorkPlan | None = encode.plan
        while plan is not None:
            plan = self._execute(plan, 1)
        denoise = self._executor.prepare(
            self._command(request_id, "denoise", {"text_features": "encode.text_features"})
        )
        assert isinstance(denoise, LoopPrepared), denoise
        return denoise.plan

    def _run(self, plan: WorkPlan) -> None:
        assert self._execute(plan, STEPS) is None
        self._executor.release(ReleaseLoops(request_id=plan.loop.request_id, attempt=1))

    def _execute(self, plan: WorkPlan, steps: int) -> WorkPlan | None:
        [unit] = plan.units
        executed = self._executor.execute(
            ExecuteBatch(batch_id="b", kind=unit.kind, unit_ids=(unit.unit_id,), window=steps)
        )
        assert executed.results[-1].error is None, executed.results[-1].error
        return executed.results[-1].next_plan

    def _snapshot(self, request_id: str, *, release: bool = False) -> RequestSnapshotted:
        event = self._executor.snapshot(
            SnapshotLoops(request_id=request_id, attempt=1, release=release)
        )
        assert event.error is None, event.error
        return event

    def _command(
        self, request_id: str, node_id: str, inputs: dict[str, str] | None = None
    ) -> PrepareLoop:
        return PrepareLoop(
            loop=LoopRef(request_id=request_id, node_id=node_id, attempt=1),
            loop_id=node_id,
            model_instance_id=self._instance_id,
            request=RequestSpec(
                request_id=request_id,
                kind=RequestKind.GENERATION,
                model_id=MODEL,
                program_id="text_to_video",
                inputs=(TextPart(role="prompt", text="a red three moving left"),),
                sampling=SamplingParams(
                    width=48,
                    height=48,
                    num_frames=9,
                    fps=8,
                    steps=STEPS,
                    seed=7,
                    guidance_scale=3.0,
                    flow_shift=3.0,
                ),
                outputs=OutputSpec(video=True),
            ),
            inputs=inputs or {},
        )
