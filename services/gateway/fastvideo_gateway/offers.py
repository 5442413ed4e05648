"""The models that the gateway offers, and why it does not serve the others that it knows."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fastvideo.deployment.catalog import Catalog, CatalogEntry


def offered_models(
    deployed: Sequence[str] | None, checkpoints: Path | None, families: Sequence[str] = ()
) -> Catalog:
    """Every known model; those that are not deployed say so, and what to do.

    `deployed` None means all; `families` are packages beside those that ship. Raises NotFound for
    an id that no card has and for a package that there is not.
    """
    catalog = Catalog.load(None, checkpoints, packages=families)
    if deployed is None:
        return catalog
    for model_id in deployed:
        catalog.get(model_id)
    return Catalog({entry.card.model_id: _offered(entry, deployed) for entry in catalog.entries})


def _offered(entry: CatalogEntry, deployed: Sequence[str]) -> CatalogEntry:
    model_id = entry.card.model_id
    if model_id in deployed:
        return entry
    reason = f"{model_id} is not deployed; add it to FASTVIDEO_MODELS and restart"
    if entry.unavailable_reason:
        reason = f"{reason}; {entry.unavailable_reason}"
    return replace(entry, unavailable_reason=reason)
