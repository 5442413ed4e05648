"""A folder with the six authoring files, read strictly and checked against one another.

    model.yaml        family, variants, components, checkpoint, capabilities; `base` names a card
    loops.yaml        loops, state schemas, step policies, cache policies
    parallel.yaml     valid parallel plans, placement, mesh order
    programs.yaml     programs
    deployment.yaml   models, role pools, transport, SLOs, fleet
    training.yaml     rollout, reward, optimizer, weight sync, capture

A folder without model.yaml deploys models that are installed; every file but that or
deployment.yaml may be left out. All faults are told at once, each with its file and its key.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from fastvideo.deployment.authoring import (
    DeploymentDocument,
    LoopsDocument,
    ParallelDocument,
    TrainingDocument,
)
from fastvideo.deployment.catalog import Catalog
from fastvideo.deployment.project_checks import Checked, cross_problems
from fastvideo.errors import ContractViolation, FastVideoError, InvalidField, NotFound
from fastvideo.model.card import card_digest, merge_cards
from fastvideo.model.documents import InvalidDocument, parse, read_document, unknown_field
from fastvideo.model.manifest import read_manifest, verify_checkpoint
from fastvideo.model.specs import ModelSpec
from fastvideo.model.state_schemas import (
    SHARED,
    StateSchemas,
    card_state_problems,
    schema_problems,
)
from fastvideo.model.validation import card_problems
from fastvideo.program.load import load_programs, programs_for
from fastvideo.program.specs import ProgramSpec

T = TypeVar("T")

MODEL: Final = "model.yaml"
LOOPS: Final = "loops.yaml"
PARALLEL: Final = "parallel.yaml"
PROGRAMS: Final = "programs.yaml"
DEPLOYMENT: Final = "deployment.yaml"
TRAINING: Final = "training.yaml"
FILES: Final = (MODEL, LOOPS, PARALLEL, PROGRAMS, DEPLOYMENT, TRAINING)

# Where the parts of a card are written.
_FILE_OF: Final[Mapping[str, str]] = {"loops": LOOPS, "caches": LOOPS, "parallelism": PARALLEL}


@dataclass(frozen=True, slots=True)
class ProjectFault:
    """One thing that is wrong."""

    file: str
    # Dotted path in the file.
    key: str
    fault: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: {self.fault}"


class InvalidProject(ContractViolation):
    """The files of a folder are wrong, or do not fit together."""

    default_reason = "INVALID_PROJECT"

    def __init__(self, faults: Iterable[ProjectFault]) -> None:
        self.faults = tuple(faults)
        first = self.faults[0]
        super().__init__("\n".join(map(str, self.faults)), subject=f"{first.file}: {first.key}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What a folder says, typed."""

    folder: Path
    # None when the folder deploys installed models alone.
    card: ModelSpec | None
    programs: Mapping[str, ProgramSpec]
    deployment: DeploymentDocument
    training: TrainingDocument | None
    # The models that are served, installed ones too.
    cards: Mapping[str, ModelSpec]
    checkpoints: Mapping[str, str] = field(default_factory=dict)
    # The schemas of the card's loops' states.
    state_schemas: StateSchemas = field(default_factory=dict)


def read_project(
    folder: Path, *, checkpoints: Path | None = None, families: Iterable[str] = ()
) -> Project:
    """Read and check a folder; no server, no torch.

    `checkpoints` is a folder of checkpoints to verify against their manifests, instead of the
    one that deployment.yaml names. Raises NotFound when there is no such folder and
    InvalidProject with every fault.
    """
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}", subject=str(folder))
    reader = _Reader(folder)
    installed = Catalog.load(packages=tuple(families))
    card = reader.card(installed)
    programs = reader.programs()
    deployment = reader.deployment()
    training = reader.optional(TRAINING, TrainingDocument)
    for name in FILES:
        path = folder / name
        # A link to nowhere, or a folder of that name: what its author meant to say is not there.
        if (path.is_symlink() or path.exists()) and not path.is_file():
            reader.add(name, "file", "is there and is no file that can be read")
    if not any((folder / name).is_file() for name in (MODEL, DEPLOYMENT)):
        reader.add(DEPLOYMENT, "file", f"is missing; a project has {MODEL} or {DEPLOYMENT}")
    if programs and not (folder / MODEL).exists():
        reader.add(PROGRAMS, "file", f"belongs to a {MODEL}, which is missing")
    reader.raise_faults()
    cards, served = reader.served(card, programs, deployment, installed)
    checked = Checked(card=card, cards=cards, programs=served, deployment=deployment)
    for file, key, fault in cross_problems(checked, training):
        reader.add(file, key, fault)
    found = reader.checkpoints(cards, checkpoints or _checkpoints_of(folder, deployment))
    reader.raise_faults()
    return Project(
        folder=folder,
        card=card,
        programs=programs,
        deployment=deployment,
        training=training,
        cards=cards,
        checkpoints=found,
        state_schemas=reader.state_schemas,
    )


def _installed_schemas(installed: Catalog, family: str) -> StateSchemas:
    """What the family of a card declares, and what every family has."""
    of_family = (entry for entry in installed.entries if entry.card.family == family)
    return next((entry.state_schemas for entry in of_family), SHARED)


def _checkpoints_of(folder: Path, deployment: DeploymentDocument) -> Path | None:
    return folder / deployment.checkpoints if deployment.checkpoints else None


def project_record(project: Project) -> dict[str, Any]:
    """What a folder says, as data."""
    return {
        "folder": str(project.folder),
        "models": sorted(project.cards),
        "card_digest": card_digest(project.card) if project.card is not None else "",
        "programs": sorted(project.programs),
        "deployment": TypeAdapter(DeploymentDocument).dump_python(project.deployment, mode="json"),
        "training": TypeAdapter(TrainingDocument | None).dump_python(project.training, mode="json"),
        "checkpoints": dict(project.checkpoints),
    }


class _Reader:
    """Reads the files of one folder and gathers what is wrong."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._faults: list[ProjectFault] = []
        # Those that the card may name, once it was read.
        self.state_schemas: StateSchemas = {}
        unknown = {path.name for path in folder.glob("*.y*ml")} - set(FILES)
        for name in sorted(unknown):
            self.add(name, "file", f"is none of {', '.join(FILES)}")

    def add(self, file: str, key: str, fault: str) -> None:
        """Note a fault."""
        self._faults.append(ProjectFault(file, key, fault))

    def raise_faults(self) -> None:
        """Raise InvalidProject when there are any."""
        if self._faults:
            raise InvalidProject(self._faults)

    def optional(self, name: str, cls: type[T]) -> T | None:
        """A file as a dataclass; None when it is not there or is wrong."""
        data = self._data(name)
        return None if data is None else self._parsed(name, lambda: parse(cls, data, name))

    def card(self, installed: Catalog) -> ModelSpec | None:
        """The card that model.yaml, loops.yaml and parallel.yaml make together."""
        model = self._data(MODEL)
        if model is None:
            for name in (LOOPS, PARALLEL):
                if (self._folder / name).is_file() and not (self._folder / MODEL).exists():
                    self.add(name, "file", f"belongs to a {MODEL}, which is missing")
            return None
        for key, file in _FILE_OF.items():
            if key in model:
                self.add(MODEL, key, f"is written in {file}")
        loops = self._data(LOOPS) or {}
        schemas = self._state_schemas(loops.pop("state_schemas", None))
        parts = [model, loops, self._parallel()]
        self._check_shapes()
        base = str(model.pop("base", "") or "")
        if self._faults:
            return None
        data: dict[str, Any] = {}
        if base:
            data = self._base(base, installed)
        for part in parts:
            data = merge_cards(data, part)
        card = self._whole_card(data)
        if card is not None:
            known = _installed_schemas(installed, card.family)
            self.state_schemas = {**known, **schemas}
            self._add_card_faults(card_state_problems(card, self.state_schemas))
        return card

    def programs(self) -> dict[str, ProgramSpec]:
        """The programs of programs.yaml."""
        path = self._folder / PROGRAMS
        if not path.is_file():
            return {}
        return self._parsed(PROGRAMS, lambda: load_programs(path)) or {}

    def deployment(self) -> DeploymentDocument:
        """deployment.yaml, or the default that serves the folder's model."""
        return self.optional(DEPLOYMENT, DeploymentDocument) or DeploymentDocument(models=())

    def served(
        self,
        card: ModelSpec | None,
        programs: dict[str, ProgramSpec],
        deployment: DeploymentDocument,
        installed: Catalog,
    ) -> tuple[dict[str, ModelSpec], dict[str, Mapping[str, ProgramSpec]]]:
        """The served models' cards and programs, by model id."""
        cards: dict[str, ModelSpec] = {}
        served: dict[str, Mapping[str, ProgramSpec]] = {}
        own = card.model_id if card is not None else ""
        for index, model_id in enumerate(deployment.models or ((own,) if own else ())):
            if card is not None and model_id == own:
                cards[model_id] = card
                served[model_id] = programs_for(programs, card)
            elif model_id in installed.model_ids:
                entry = installed.get(model_id)
                cards[model_id], served[model_id] = entry.card, entry.programs
            else:
                known = ", ".join((*installed.model_ids, *((own,) if own else ())))
                self.add(DEPLOYMENT, f"models.{index}", f"{model_id!r} is none of {known}")
        return cards, served

    def checkpoints(self, cards: Mapping[str, ModelSpec], root: Path | None) -> dict[str, str]:
        """What was found of the checkpoints, by model; those that are there are verified."""
        found = {}
        for model_id, card in cards.items():
            folder = root / card.checkpoint if root is not None else None
            if folder is None or not folder.is_dir():
                continue
            try:
                verify_checkpoint(folder, read_manifest(folder))
            except FastVideoError as error:
                self.add(DEPLOYMENT, f"checkpoints.{card.checkpoint}", error.message)
            else:
                found[model_id] = str(folder)
        return found

    def _state_schemas(self, given: Any) -> StateSchemas:
        """Those of loops.yaml, checked each."""
        if given is None:
            return {}
        document = self._parsed(
            LOOPS, lambda: parse(LoopsDocument, {"state_schemas": given}, LOOPS)
        )
        schemas = document.state_schemas if document is not None else {}
        for key, fault in schema_problems(schemas).items():
            self.add(LOOPS, f"state_schemas.{key}", fault)
        return schemas

    def _parallel(self) -> dict[str, Any]:
        parallel = self.optional(PARALLEL, ParallelDocument)
        data = self._data(PARALLEL)
        if parallel is None or data is None:
            return {}
        placement = data.pop("placement", {})
        contract = {"parallelism": data} if data else {}
        components = {name: {"placement_policy": policy} for name, policy in placement.items()}
        return {**contract, **({"components": components} if components else {})}

    def _check_shapes(self) -> None:
        """That loops.yaml has no keys beside its own."""
        known = LoopsDocument.__dataclass_fields__
        for key in sorted(set(self._data(LOOPS) or {}) - set(known)):
            self.add(LOOPS, key, unknown_field(key, known))

    def _base(self, base: str, installed: Catalog) -> dict[str, Any]:
        try:
            return installed.document(base)
        except NotFound as error:
            self.add(MODEL, "base", error.message)
            return {}

    def _whole_card(self, data: dict[str, Any]) -> ModelSpec | None:
        try:
            card = parse(ModelSpec, data, MODEL)
        except InvalidDocument as error:
            self._add_card_faults(error.problems)
            return None
        self._add_card_faults(card_problems(card))
        return card

    def _add_card_faults(self, problems: Mapping[str, str]) -> None:
        placed = (self._data(PARALLEL) or {}).get("placement", {})
        for key, fault in problems.items():
            names = key.split(".")
            if names[-1] == "placement_policy" and names[1] in placed:
                self.add(PARALLEL, f"placement.{names[1]}", fault)
                continue
            file = _FILE_OF.get(key.partition(".")[0], MODEL)
            self.add(file, key.removeprefix("parallelism."), fault)

    def _data(self, name: str) -> dict[str, Any] | None:
        path = self._folder / name
        if not path.is_file():
            return None
        return self._parsed(name, lambda: read_document(path))

    def _parsed(self, name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except InvalidDocument as error:
            for key, fault in error.problems.items():
                told = ProjectFault(name, key, fault)
                if told not in self._faults:
                    self._faults.append(told)
        except InvalidField as error:
            self.add(name, error.field, error.message)
        except OSError as error:
            self.add(name, "file", f"cannot be read: {error.strerror or error}")
        return None
