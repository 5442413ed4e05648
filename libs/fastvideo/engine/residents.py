"""The models that are resident on a worker: loaded, unloaded, put to sleep and woken."""

from collections.abc import Mapping
from typing import Any, Protocol

from fastvideo.engine.instance import ModelInstance
from fastvideo.errors import AlreadyExists, CheckpointError, NotFound
from fastvideo.loops.contract import LoopKernel
from fastvideo.memory.pools import MemoryPools, MemoryTag

Kernel = LoopKernel[Any, Any]


class ModelLoader(Protocol):
    """Makes a model instance from a card and a checkpoint."""

    def load(self, model_id: str, checkpoint: str) -> ModelInstance:
        """Load and verify a model; an empty checkpoint means the card's own.

        Raises NotFound for an unknown model and CheckpointError for a bad checkpoint.
        """
        ...

    def expected_bytes(self, model_id: str, checkpoint: str) -> int:
        """What the weights of a checkpoint will take at most. Raises as `load` does."""
        ...


class Residents:
    """Model instances by id, their weights counted in the pool, and the kernels of no model.

    `kernels` are by loop id, such as the artifact writer.
    """

    def __init__(
        self,
        pools: MemoryPools,
        loader: ModelLoader,
        kernels: Mapping[str, Kernel] | None = None,
    ) -> None:
        self._pools = pools
        self._loader = loader
        self._kernels = dict(kernels or {})
        self._instances: dict[str, ModelInstance] = {}
        # What each instance was loaded from, for its waking.
        self._sources: dict[str, tuple[str, str]] = {}

    def all(self) -> tuple[ModelInstance, ...]:
        """Every resident model, asleep or awake."""
        return tuple(self._instances.values())

    def find(self, model_instance_id: str) -> ModelInstance:
        """A resident model. Raises NotFound."""
        if model_instance_id not in self._instances:
            raise NotFound(
                f"no model instance {model_instance_id!r} is loaded here",
                subject=model_instance_id,
            )
        return self._instances[model_instance_id]

    def kernel(self, model_instance_id: str, loop_id: str) -> tuple[Kernel, ModelInstance | None]:
        """The kernel of a loop and its instance; looked up anew, since sleep takes kernels away."""
        if loop_id in self._kernels:
            return self._kernels[loop_id], self._instances.get(model_instance_id)
        instance = self.find(model_instance_id)
        return instance.kernel(loop_id), instance

    def load(self, model_id: str, checkpoint: str = "") -> ModelInstance:
        """Load a model and keep it; the same weights that sleep are woken by it.

        Raises AlreadyExists when these weights are resident, OutOfMemory before anything is
        loaded when they do not fit, and what the loader raises.
        """
        loaded = self._load(model_id, checkpoint)
        instance = self._instances.setdefault(loaded.model_instance_id, loaded)
        if instance is not loaded:
            if not instance.asleep:
                raise AlreadyExists(f"{model_id} is loaded", subject=instance.model_instance_id)
            instance.restore(loaded.components, loaded.kernels)
        self._count(instance)
        self._sources[instance.model_instance_id] = (model_id, checkpoint)
        return instance

    def sleepers(self, model_id: str) -> tuple[ModelInstance, ...]:
        """The instances of a model that sleep."""
        return tuple(
            instance
            for instance in self.all()
            if instance.asleep and instance.card.model_id == model_id
        )

    def unload(self, model_instance_id: str) -> int:
        """Let go of a model; returns the bytes of its weights. Raises NotFound."""
        instance = self.find(model_instance_id)
        freed = self._drop(instance)
        del self._instances[model_instance_id], self._sources[model_instance_id]
        return freed

    def sleep(self) -> int:
        """Drop the weights of every model, keeping their identities; returns the bytes."""
        return sum(self._drop(instance) for instance in self.all() if not instance.asleep)

    def wake(self) -> int:
        """Load the dropped weights again; returns the bytes.

        Raises CheckpointError when a checkpoint now holds other weights, OutOfMemory when they
        do not fit any more; what was not woken by then sleeps on.
        """
        restored = 0
        for instance in self.all():
            if not instance.asleep:
                continue
            again = self._load(*self._sources[instance.model_instance_id])
            if again.weights_version != instance.weights_version:
                raise CheckpointError(
                    f"the checkpoint of {instance.card.model_id} holds other weights now",
                    subject=instance.card.model_id,
                    attributes={
                        "expected": instance.weights_version,
                        "found": again.weights_version,
                    },
                )
            instance.restore(again.components, again.kernels)
            self._count(instance)
            restored += instance.weights_bytes
        return restored

    def _load(self, model_id: str, checkpoint: str) -> ModelInstance:
        """Load what is known to fit, so that nothing else takes its place meanwhile."""
        expected = self._loader.expected_bytes(model_id, checkpoint)
        owner = f"loading:{model_id}"
        self._pools.resize(MemoryTag.WEIGHTS, owner, expected)
        try:
            return self._loader.load(model_id, checkpoint)
        finally:
            self._pools.release(owner)

    def _drop(self, instance: ModelInstance) -> int:
        freed = instance.weights_bytes
        instance.drop_components()
        self._count(instance)
        return freed

    def _count(self, instance: ModelInstance) -> None:
        owner = f"instance:{instance.model_instance_id}"
        self._pools.resize(MemoryTag.WEIGHTS, owner, instance.weights_bytes)
