"""Model instances from cards and checkpoints."""

from collections.abc import Sequence
from pathlib import Path

import diffusers.utils.logging
import transformers.utils.logging

from fastvideo.deployment.catalog import Catalog
from fastvideo.engine.instance import ModelInstance, instance_id
from fastvideo.models.registry import FAMILIES, family_modules, load_instance_parts


class CatalogLoader:
    """Loads the models of a catalog for one worker; `packages` are families of others."""

    def __init__(self, catalog: Catalog, worker_id: str, packages: Sequence[str] = ()) -> None:
        self._catalog = catalog
        self._worker_id = worker_id
        self._families = FAMILIES | family_modules(packages)

    def load(self, model_id: str, checkpoint: str) -> ModelInstance:
        """Load and verify a model; an empty checkpoint means the card's own.

        Raises NotFound for an unknown model and CheckpointError for a bad checkpoint.
        """
        entry = self._catalog.get(model_id)
        folder = Path(checkpoint) if checkpoint else entry.require_checkpoint()
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


def quiet_libraries() -> None:
    """Keep the model libraries from drawing progress bars into this process's output."""
    transformers.utils.logging.disable_progress_bar()
    diffusers.utils.logging.disable_progress_bar()
