"""Model instances from cards and checkpoints."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import diffusers.utils.logging
import transformers.utils.logging

from fastvideo.deployment.catalog import Catalog
from fastvideo.engine.instance import ModelInstance, instance_id
from fastvideo.model.manifest import read_manifest
from fastvideo.models.registry import FAMILIES, family_modules, load_instance_parts

# Weights are run in float32, however they are stored.
_PARAMETER_BYTES: Final = 4


class CatalogLoader:
    """Loads the models of a catalog for one worker; `packages` are families of others."""

    def __init__(self, catalog: Catalog, worker_id: str, packages: Sequence[str] = ()) -> None:
        self._catalog = catalog
        self._worker_id = worker_id
        self._families = {**FAMILIES, **family_modules(packages)}

    def load(self, model_id: str, checkpoint: str) -> ModelInstance:
        """Load and verify a model; an empty checkpoint means the card's own.

        Raises NotFound for an unknown model and CheckpointError for a bad checkpoint.
        """
        entry = self._catalog.get(model_id)
        folder = self._folder(model_id, checkpoint)
        parts = load_instance_parts(entry.card, folder, self._families)
        return ModelInstance(
            model_instance_id=instance_id(
                self._worker_id, entry.card_digest, parts.weights_version
            ),
            card=entry.card,
            card_digest=entry.card_digest,
            components=parts.components,
            kernels=parts.kernels,
            weights_version=parts.weights_version,
            precision=parts.precision,
            fingerprint=parts.fingerprint,
        )

    def expected_bytes(self, model_id: str, checkpoint: str) -> int:
        """What the weights of a checkpoint will take at most. Raises as `load` does."""
        manifest = read_manifest(self._folder(model_id, checkpoint))
        tables = manifest.shape_map.values()
        return sum(
            _PARAMETER_BYTES * math.prod(tensor.shape)
            for table in tables
            for tensor in table.tensors
        )

    def _folder(self, model_id: str, checkpoint: str) -> Path:
        return Path(checkpoint) if checkpoint else self._catalog.get(model_id).require_checkpoint()


def quiet_libraries() -> None:
    """Keep the model libraries from drawing progress bars into this process's output."""
    transformers.utils.logging.disable_progress_bar()
    diffusers.utils.logging.disable_progress_bar()
