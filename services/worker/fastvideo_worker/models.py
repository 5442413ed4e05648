"""Loading, warming, unloading, sleeping and waking, each on the thread where it belongs."""

from collections.abc import Sequence
from typing import Final

import torch

from fastvideo.deployment.catalog import Catalog
from fastvideo.engine.executor import Executor
from fastvideo.engine.fingerprint import machine_fingerprint
from fastvideo.engine.instance import ModelInstance
from fastvideo.engine.memory_watch import SLEPT, WOKEN
from fastvideo.engine.probe_notes import probe_checks
from fastvideo.engine.residents import Residents
from fastvideo.engine.startup import start_models
from fastvideo.engine.warmup import warm_up
from fastvideo.memory.pools import MemoryTag
from fastvideo.memory.system import give_back_unused
from fastvideo.scheduling.work import LoopRef
from fastvideo.telemetry.logging import get_logger
from fastvideo_worker.lanes import Lane
from fastvideo_worker.status import WorkerStatus

_LOG: Final = get_logger(__name__)

_NEEDED_BY_REQUESTS: Final = frozenset({MemoryTag.WEIGHTS, MemoryTag.ACTIVATIONS})


class Models:
    """The models of a worker over its life. Used from the event loop's thread.

    Loading runs beside compute; warming and everything that takes memory away runs on a
    compute thread, between two steps and alone.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        residents: Residents,
        executor: Executor,
        status: WorkerStatus,
        compute: Lane,
        loader: Lane,
        waiters: Lane,
    ) -> None:
        self._catalog = catalog
        self._residents = residents
        self._executor = executor
        self._status = status
        self._compute = compute
        self._loader = loader
        self._waiters = waiters
        self._threads = 1

    async def start(self, model_ids: Sequence[str], threads: int | None) -> None:
        """Load and warm the worker's models and fix its thread count; then it is ready."""
        start = await self._compute.run_alone(
            lambda: start_models(self._catalog, self._residents, self._executor, model_ids, threads)
        )
        self._threads = start.threads
        self._status.start_seconds = {
            "load": start.load_seconds,
            "probe": start.probe_seconds,
            "warm_up": start.warm_up_seconds,
        }
        self._status.fingerprint = machine_fingerprint(self._threads) | {
            f"{instance.card.model_id}/{name}": fact
            for instance in self._residents.all()
            for name, fact in instance.fingerprint.items()
        }
        for instance in self._residents.all():
            self._executor.noting.book.add(*probe_checks(instance))
        self._status.ready = True

    async def load(self, model_id: str, checkpoint: str) -> ModelInstance:
        """Load and warm one more model, in place of one that sleeps with other weights.

        Raises as `Residents.load` does.
        """

        def call() -> ModelInstance:
            # What a model measures of the machine while it loads depends on the count.
            torch.set_num_threads(self._threads)
            return self._residents.load(model_id, checkpoint)

        instance = await self._loader.run(call)
        for replaced in self._residents.sleepers(model_id):
            await self.unload(replaced.model_instance_id)
        entry = self._catalog.get(model_id)
        await self._compute.run_alone(
            lambda: warm_up(self._executor, instance.model_instance_id, entry)
        )
        self._executor.noting.book.add(*probe_checks(instance))
        _LOG.info("model loaded", model_id=model_id, model_instance_id=instance.model_instance_id)
        return instance

    async def unload(self, model_instance_id: str) -> int:
        """Free a model, its loops and its cached features; returns the bytes of its weights."""

        def call() -> int:
            instance = self._residents.find(model_instance_id)
            self._executor.release_model(model_instance_id)
            freed = self._residents.unload(model_instance_id)
            self._executor.features.invalidate(
                lambda key: key.weights_version == instance.weights_version
            )
            self._executor.forget_model(model_instance_id)
            give_back_unused()
            return freed

        return await self._compute.run_alone(call)

    async def sleep(self, tags: frozenset[MemoryTag]) -> int:
        """Free the memory of the tags; returns the bytes.

        Weights and activations sleep only while no request is here, since a request that is
        here needs them. Raises FailedPrecondition (REQUESTS_RUNNING), and frees nothing, when
        one is.
        """

        def call() -> int:
            if tags & _NEEDED_BY_REQUESTS:
                # Alone on the lane: no request can begin before the end of the call.
                self._executor.check_no_requests()
            before = sum(self._status.pools.in_use_bytes().values())
            if MemoryTag.CACHES in tags:
                self._executor.features.invalidate(lambda key: True)
            if MemoryTag.WEIGHTS in tags:
                self._residents.sleep()
            give_back_unused()
            return before - sum(self._status.pools.in_use_bytes().values())

        freed = await self._compute.run_alone(call)
        self._status.sleeping |= tags
        self._executor.noting.memory.changed(tags, SLEPT)
        return freed

    async def wake(self, tags: frozenset[MemoryTag]) -> int:
        """Load dropped weights again; caches fill by themselves. Returns the bytes."""
        restored = 0
        if MemoryTag.WEIGHTS in tags:
            restored = await self._compute.run_alone(self._residents.wake)
        self._status.sleeping -= tags
        self._executor.noting.memory.changed(tags, WOKEN)
        return restored

    async def boundary(self, refs: Sequence[LoopRef], timeout_s: float) -> bool:
        """Whether the loops were gone, at the end of the step that runs, within the time."""
        return await self._waiters.run(lambda: self._executor.wait_gone(refs, timeout_s))
