"""The catalog: which models a deployment knows, from package data alone, without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from fastvideo.errors import CheckpointError, InvalidField, NotFound
from fastvideo.model.card import card_digest, card_document, load_cards
from fastvideo.model.documents import InvalidDocument
from fastvideo.model.manifest import MANIFEST_NAME
from fastvideo.model.specs import ModelSpec
from fastvideo.model.state_schemas import FILE as STATE_SCHEMAS
from fastvideo.model.state_schemas import StateSchemas, card_state_problems, load_state_schemas
from fastvideo.program.load import check_programs, check_served, load_programs, programs_for
from fastvideo.program.specs import ProgramSpec
from fastvideo.requests.types import RequestKind

FAMILIES: Final = Path(__file__).resolve().parent.parent / "models"
"""The folder of the families; their cards and programs are data and are read by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """One model: its card, the programs that it can run, and where its weights are."""

    card: ModelSpec
    card_digest: str
    programs: Mapping[str, ProgramSpec]
    # A folder in diffusers format; None when there is none.
    checkpoint_path: Path | None
    # Why the model cannot be loaded; empty when it can.
    unavailable_reason: str
    # Where its family's cards and programs are.
    family_path: Path = FAMILIES
    # The schemas of its loops' states, and of others of its family, by name and version.
    state_schemas: StateSchemas = field(default_factory=dict)

    def program_for(self, kind: RequestKind, program_id: str = "") -> ProgramSpec:
        """The named program, or the default of the kind when no name is given.

        Raises InvalidField when the model has no such program of the kind.
        """
        of_kind = {p.program_id: p for p in self.programs.values() if p.request_kind is kind}
        if not of_kind:
            served = sorted({p.request_kind.value for p in self.programs.values()})
            raise InvalidField("kind", kind.value, " or ".join(served))
        if program_id:
            if program_id not in of_kind:
                raise InvalidField("program_id", program_id, " or ".join(sorted(of_kind)))
            return of_kind[program_id]
        return next(program for program in of_kind.values() if program.is_default)

    def require_checkpoint(self) -> Path:
        """The folder of the weights.

        Raises CheckpointError saying what to put where.
        """
        if self.checkpoint_path is None:
            raise CheckpointError(self.unavailable_reason, subject=self.card.model_id)
        return self.checkpoint_path


class Catalog:
    """The models that a deployment knows, by id."""

    def __init__(self, entries: Mapping[str, CatalogEntry]) -> None:
        self._entries = dict(entries)

    @classmethod
    def load(
        cls,
        models: Sequence[str] | None = None,
        checkpoints: Path | None = None,
        families: Path = FAMILIES,
        packages: Sequence[str] = (),
    ) -> "Catalog":
        """Read the cards and programs of every family.

        `packages` are import names of families beside those of the folder `families`, and folders
        of projects (`deployment.project`), whose models and workflows are served with them.

        `models` keeps only these ids; `checkpoints` is a folder of the user's checkpoints,
        one subfolder a model. Raises InvalidDocument for a card or program that is wrong and
        NotFound for an id in `models` that no card has.
        """
        entries: dict[str, CatalogEntry] = {}
        names = [package for package in packages if not is_project(package)]
        folders = sorted(path.parent for path in families.glob("*/cards"))
        for family in (*folders, *map(family_folder, names)):
            programs = load_programs(family / "programs.yaml")
            schemas = load_state_schemas(family / STATE_SCHEMAS)
            cards, source = load_cards(family / "cards"), f"{family.name}/programs.yaml"
            check_served(programs, cards.values(), source)
            for model_id, card in cards.items():
                if model_id in entries:
                    raise InvalidDocument(source, {"model_id": f"{model_id!r} is there twice"})
                undeclared = card_state_problems(card, schemas)
                if undeclared:
                    raise InvalidDocument(f"{model_id}.yaml", undeclared)
                own = programs_for(programs, card)
                check_programs(own, card, f"{source} for {model_id}")
                entries[model_id] = entry_of(card, own, family, checkpoints, schemas)
        catalog = cls(entries)
        for package in filter(is_project, packages):
            catalog = catalog._beside(Path(package), names, checkpoints)
        if models is None:
            return catalog
        return cls({model_id: catalog.get(model_id) for model_id in models})

    def _beside(self, folder: Path, packages: Sequence[str], checkpoints: Path | None) -> "Catalog":
        """With the model of a project."""
        # Reading one needs a catalog.
        from fastvideo.deployment.project_entry import project_entry

        entry = project_entry(folder, self, packages, checkpoints)
        if entry is None:
            return self
        return Catalog({**self._entries, entry.card.model_id: entry})

    @property
    def model_ids(self) -> tuple[str, ...]:
        """Every known id, sorted."""
        return tuple(sorted(self._entries))

    @property
    def entries(self) -> tuple[CatalogEntry, ...]:
        """Every known model, by id."""
        return tuple(self._entries[model_id] for model_id in self.model_ids)

    def get(self, model_id: str) -> CatalogEntry:
        """The model of an id.

        Raises NotFound naming the known ids.
        """
        entry = self._entries.get(model_id)
        if entry is None:
            raise NotFound(
                f"model_id is {model_id!r}; known models: {', '.join(self.model_ids)}",
                reason="MODEL_NOT_FOUND",
                subject="model_id",
                attributes={"allowed": ", ".join(self.model_ids)},
            )
        return entry

    def document(self, model_id: str) -> dict[str, Any]:
        """A model's card as plain data, for cards that are based on it. Raises NotFound."""
        return card_document(self.get(model_id).family_path / "cards", model_id)


def is_project(package: str) -> bool:
    """Whether that is a project's folder, and no package's import name."""
    return "/" in package


def family_folder(package: str) -> Path:
    """The folder of a family's package; nothing of the family is imported.

    Raises NotFound when there is no such package.
    """
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise NotFound(
            f"there is no package {package!r}", reason="FAMILY_NOT_FOUND", subject="families"
        )
    return Path(places[0])


def entry_of(
    card: ModelSpec,
    programs: dict[str, ProgramSpec],
    family: Path,
    checkpoints: Path | None,
    schemas: StateSchemas,
) -> CatalogEntry:
    """A model's entry, with its weights where they are found."""
    folders = [root / card.checkpoint for root in (checkpoints, family / "checkpoints") if root]
    found = next((folder for folder in folders if folder.is_dir()), None)
    reason = _absent(card, checkpoints) if found is None else _incomplete(card, found)
    return CatalogEntry(
        card=card,
        card_digest=card_digest(card),
        programs=programs,
        checkpoint_path=None if reason else found,
        unavailable_reason=reason,
        family_path=family,
        state_schemas=schemas,
    )


def _absent(card: ModelSpec, checkpoints: Path | None) -> str:
    where = (
        f"put it at {checkpoints / card.checkpoint}"
        if checkpoints
        else f"name a checkpoints folder that holds it as {card.checkpoint}"
    )
    return f"{card.model_id} has no checkpoint: {where}; {_layout(card)}"


def _incomplete(card: ModelSpec, folder: Path) -> str:
    missing = [name for name in _subfolders(card) if not (folder / name).is_dir()]
    if missing:
        return f"{folder} lacks {', '.join(missing)}; {_layout(card)}"
    if not (folder / MANIFEST_NAME).is_file():
        return (
            f"{folder} lacks {MANIFEST_NAME}; write it with "
            f"`python -m fastvideo.model.manifest {folder}`"
        )
    return ""


def _layout(card: ModelSpec) -> str:
    parts = [
        f"{component.subfolder}/ ({component.load_id})" for component in card.components.values()
    ]
    return (
        f"a folder in diffusers format with {', '.join(parts)}, each with its configuration and "
        "its *.safetensors, as the public checkpoint has them, and a manifest.json written by "
        "`python -m fastvideo.model.manifest FOLDER`"
    )


def _subfolders(card: ModelSpec) -> list[str]:
    return [component.subfolder for component in card.components.values() if component.subfolder]
