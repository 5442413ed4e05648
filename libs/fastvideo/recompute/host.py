"""A logged run's model, loaded anew, and the machinery that runs it again, step by step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch

from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.cache.features import TextFeatureCache
from fastvideo.cache.memory_tier import MemoryTier
from fastvideo.clock import SystemClock
from fastvideo.deployment.catalog import Catalog, CatalogEntry
from fastvideo.engine.artifact_writer import LOOP_ID, ArtifactWriter
from fastvideo.engine.budgets import machine_bytes, pool_budgets
from fastvideo.engine.executor import Executor
from fastvideo.engine.fingerprint import library_versions, machine_fingerprint
from fastvideo.engine.instance import ModelInstance
from fastvideo.engine.loading import CatalogLoader, quiet_libraries
from fastvideo.engine.request_inputs import RequestInputs
from fastvideo.engine.residents import Residents
from fastvideo.engine.sink import LocalArtifacts, LocalBlobs
from fastvideo.engine.solo import solo_batches
from fastvideo.errors import ResourceExhausted
from fastvideo.loops.contract import LoopKernel
from fastvideo.memory.pools import MemoryPools, MemoryTag
from fastvideo.memory.system import free_machine_bytes
from fastvideo.models.recording import stop_recordings
from fastvideo.program.specs import ProgramSpec
from fastvideo.recompute.sources import NoSources, Sources
from fastvideo.replay.types import LoggedRun
from fastvideo.requests.types import RequestSpec, TraceLevel
from fastvideo.scheduling.events import BatchExecuted

_WORKER_ID: Final = "replay"
_START_OVER_S: Final = 60.0
_LAYERS_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSetup:
    """Where models are, and what a run is run again with in place of what is there."""

    # Folder of the user's checkpoints.
    checkpoints: Path | None = None
    # Import names of packages with model families, beside those that ship.
    families: Sequence[str] = ()
    # None takes the run's own count.
    threads: int | None = None
    # None is the machine's.
    memory_bytes: int | None = None
    # Of the machine's, what nobody has; None asks the system.
    free_bytes: int | None = None
    # In place of the model's own, by loop and component id.
    kernels: Mapping[str, LoopKernel[Any, Any]] = field(default_factory=dict)
    components: Mapping[str, Any] = field(default_factory=dict)


class Host:
    """One run's model in this process, which serves nobody.

    The instance bears the weights version and the adapters of the logged one, so that keys and
    digests that name them compare; `weights_version` is what was loaded in truth. Raises
    NotFound for a model that no card has, CheckpointError for weights that cannot be loaded,
    ResourceExhausted, before anything is loaded, for weights that the free memory does not hold.
    """

    def __init__(
        self, run: LoggedRun, setup: HostSetup | None = None, sources: Sources | None = None
    ) -> None:
        setup = setup or HostSetup()
        self.run = run
        self.sources: Sources = sources or NoSources()
        self.threads = setup.threads or int(run.fingerprint.get("threads", "1"))
        quiet_libraries()
        torch.set_num_threads(self.threads)
        catalog = Catalog.load(checkpoints=setup.checkpoints, packages=setup.families)
        self.entry: CatalogEntry = catalog.get(run.spec.model_id)
        self.program: ProgramSpec = self.entry.program_for(run.spec.kind, run.spec.program_id)
        pools = MemoryPools(pool_budgets(setup.memory_bytes or machine_bytes()))
        loader = _LoggedLoader(CatalogLoader(catalog, _WORKER_ID, setup.families), run, setup)
        _check_free(loader.expected_bytes(run.spec.model_id, ""), run.spec.model_id, setup)
        self.artifacts = LocalArtifacts(SystemClock())
        self.blobs = LocalBlobs(pools.budgets_bytes[MemoryTag.STAGING])
        residents = Residents(
            pools,
            loader,
            {LOOP_ID: ArtifactWriter(self.artifacts, _WORKER_ID, library_versions())},
        )
        # As empty as the worker's cache when a run begins.
        self._tier = MemoryTier(pools.budgets_bytes[MemoryTag.CACHES])
        self.executor = Executor(
            worker_id=_WORKER_ID,
            pools=pools,
            residents=residents,
            features=TextFeatureCache(pools.budgets_bytes[MemoryTag.CACHES]),
            clock=SystemClock(),
            shelf=self.blobs,
            tier=self._tier,
        )
        self._inputs = RequestInputs(self.sources, self.executor.values)
        self.instance: ModelInstance = residents.load(run.spec.model_id)
        # A recording takes longer to make than the steps of one run to do.
        stop_recordings(self.instance.components.values())
        self.weights_version = loader.weights_version
        self.fingerprint: Mapping[str, str] = machine_fingerprint(self.threads) | {
            f"{run.spec.model_id}/{name}": fact for name, fact in self.instance.fingerprint.items()
        }

    def batches(self, request: RequestSpec | None = None) -> Iterator[BatchExecuted]:
        """Run a request unit by unit, the run's own unless another is given; caches are empty.

        One at a time: what the one before left is gone. Raises the error of the unit that fails.
        """
        request = request or self.run.spec
        self.executor.start_over(_START_OVER_S)
        self.executor.features.invalidate(lambda _: True)
        self._tier.clear()
        self.artifacts.discard(request.request_id)
        return solo_batches(
            self.executor,
            self.instance.model_instance_id,
            self.program,
            request,
            attempt=self.attempt,
            fetch=self._inputs.fetch,
        )

    @property
    def attempt(self) -> int:
        """The attempt that runs here: the logged one."""
        return self.run.attempt or 1

    @property
    def detailed(self) -> RequestSpec:
        """The run's request, its components and layers traced at every step."""
        outputs = replace(self.run.spec.outputs, trace=TraceLevel.DETAIL)
        return replace(self.run.spec, outputs=outputs)

    @property
    def plain(self) -> RequestSpec:
        """The run's request, traced no closer than usual."""
        return replace(self.run.spec, outputs=replace(self.run.spec.outputs, trace=None))

    def wait_layers(self) -> None:
        """Wait until the layers of all that was traced are among the blobs."""
        if self.executor.layers is not None:
            self.executor.layers.wait_stored(_LAYERS_S_MAX)

    def values(self) -> dict[str, Any]:
        """All that the nodes of the run that goes on have handed on, by "node.output"."""
        return self.executor.values.all((self.run.spec.request_id, self.attempt))

    def stored(self, artifact_id: str) -> tuple[ArtifactRecord, bytes]:
        """An artifact that was made here. Raises NotFound."""
        return self.artifacts.take(artifact_id)


def _check_free(needed_bytes: int, model_id: str, setup: HostSetup) -> None:
    """Raise unless weights find room beside all that runs here, such as the worker's own."""
    free = free_machine_bytes() if setup.free_bytes is None else setup.free_bytes
    if free is None or needed_bytes <= free:
        return
    raise ResourceExhausted(
        f"a replay loads the weights of {model_id} anew: {needed_bytes} bytes, "
        f"{needed_bytes - free} more than are free here; run it with --here on another machine, "
        "or unload what is not needed",
        reason="REPLAY_MEMORY",
        subject="memory",
        attributes={
            "needed_bytes": str(needed_bytes),
            "free_bytes": str(free),
            "missing_bytes": str(needed_bytes - free),
        },
    )


class _LoggedLoader:
    """Loads a model and gives it the names of the logged instance."""

    def __init__(self, loader: CatalogLoader, run: LoggedRun, setup: HostSetup) -> None:
        self._loader = loader
        self._run = run
        self._setup = setup
        self.weights_version = ""

    def load(self, model_id: str, checkpoint: str) -> ModelInstance:
        """As the loader does."""
        loaded, logged = self._loader.load(model_id, checkpoint), self._run.instance
        self.weights_version = loaded.weights_version
        return replace(
            loaded,
            weights_version=logged.weights_version or loaded.weights_version,
            adapter_versions=dict(logged.adapter_versions),
            kernels={**loaded.kernels, **self._setup.kernels},
            components={**loaded.components, **self._setup.components},
        )

    def expected_bytes(self, model_id: str, checkpoint: str) -> int:
        """As the loader does."""
        return self._loader.expected_bytes(model_id, checkpoint)
