"""A resident model: its components, the kernels bound to them, and what they weigh."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from fastvideo.errors import FailedPrecondition, NotFound
from fastvideo.ids import derived_id
from fastvideo.loops.contract import LoopKernel
from fastvideo.model.specs import ModelSpec
from fastvideo.scheduling.work import ModelState


@dataclass(slots=True, kw_only=True)
class ModelInstance:
    """One loaded model; several loops, and several requests, share its live components.

    Asleep it keeps its identity and has no components and no kernels.
    """

    model_instance_id: str
    card: ModelSpec
    card_digest: str
    components: Mapping[str, Any]
    kernels: Mapping[str, LoopKernel[Any, Any]]
    weights_version: str
    adapter_versions: Mapping[str, str] = field(default_factory=dict)
    precision: str = "float32"
    parallel_plan_hash: str = ""
    # Facts about how it computes here, such as the batch-invariance probe's result.
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    asleep: bool = False

    def kernel(self, loop_id: str) -> LoopKernel[Any, Any]:
        """The kernel of a loop.

        Raises FailedPrecondition while the weights sleep, NotFound for a loop that the model
        does not have.
        """
        if self.asleep:
            raise FailedPrecondition(
                f"the weights of {self.card.model_id} sleep",
                reason="WEIGHTS_ASLEEP",
                subject=self.model_instance_id,
            )
        if loop_id not in self.kernels:
            raise NotFound(f"{self.card.model_id} has no loop {loop_id!r}", subject=loop_id)
        return self.kernels[loop_id]

    def drop_components(self) -> None:
        """Let go of every parameter and kernel; `restore` brings them back."""
        self.components, self.kernels, self.asleep = {}, {}, True

    def restore(
        self, components: Mapping[str, Any], kernels: Mapping[str, LoopKernel[Any, Any]]
    ) -> None:
        """Take components loaded again; only the same weights may come back."""
        self.components, self.kernels, self.asleep = components, kernels, False

    @property
    def weights_bytes(self) -> int:
        """Bytes of parameters and buffers now resident, shared ones counted once."""
        return weights_bytes(self.components)

    def state(self) -> ModelState:
        """What a scheduler is told of it."""
        return ModelState(
            model_instance_id=self.model_instance_id,
            model_id=self.card.model_id,
            card_digest=self.card_digest,
            weights_version=self.weights_version,
            adapter_versions=self.adapter_versions,
            precision=self.precision,
            parallel_plan_hash=self.parallel_plan_hash,
            weights_bytes=self.weights_bytes,
        )


def instance_id(worker_id: str, card_digest: str, weights_version: str) -> str:
    """The id of a model on a worker: the same after a restart with the same weights."""
    return derived_id("mi", worker_id, card_digest, weights_version)


def weights_bytes(components: Mapping[str, Any]) -> int:
    """Bytes of all parameters and buffers; a tensor that two components share counts once."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for component in components.values()
        if isinstance(component, torch.nn.Module)
        for tensor in _tensors(component)
    }
    return sum(storages.values())


def _tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()
