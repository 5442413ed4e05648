"""A project's own model, served like one that is installed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fastvideo.deployment.catalog import Catalog, CatalogEntry, entry_of
from fastvideo.deployment.project import MODEL, InvalidProject, ProjectFault, read_project


def project_entry(
    folder: Path, installed: Catalog, packages: Sequence[str], checkpoints: Path | None
) -> CatalogEntry | None:
    """The model of a project's folder; None when it deploys installed models alone.

    Its loops are those of its card's family, which is installed. Raises NotFound for a folder
    that there is not, and InvalidProject.
    """
    project = read_project(folder, families=packages)
    card = project.card
    if card is None:
        return None
    if card.model_id in installed.model_ids:
        fault = f"{card.model_id!r} is an installed model's"
        raise InvalidProject([ProjectFault(MODEL, "model_id", fault)])
    family = next((one for one in installed.entries if one.card.family == card.family), None)
    if family is None:
        known = ", ".join(sorted({one.card.family for one in installed.entries}))
        fault = f"{card.family!r} is none of {known}"
        raise InvalidProject([ProjectFault(MODEL, "family", fault)])
    own = project.deployment.checkpoints
    root = folder / own if own else checkpoints
    entry = entry_of(card, dict(project.programs), family.family_path, root, project.state_schemas)
    return replace(entry, family_path=folder)
