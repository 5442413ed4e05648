"""What can be asked for by one id: a model, or one of its programs and workflows.

A model's id asks for what it does by default; `model_id/program_id` asks for that program. Both
are in one space of names, so that whoever lists them can ask for any of them by its id.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fastvideo.deployment.catalog import Catalog, CatalogEntry
from fastvideo.errors import InvalidField, NotFound
from fastvideo.program.specs import ProgramSpec
from fastvideo.requests.types import RequestKind


@dataclass(frozen=True, slots=True)
class Servable:
    """A program or a workflow of a model, by an id of its own."""

    entry: CatalogEntry
    program: ProgramSpec

    @property
    def servable_id(self) -> str:
        """What a request names as its model."""
        return f"{self.entry.card.model_id}/{self.program.program_id}"


def servables_of(entry: CatalogEntry) -> tuple[Servable, ...]:
    """The programs of a model, in the order of its family's file."""
    return tuple(Servable(entry, program) for program in entry.programs.values())


def find_servable(catalog: Catalog, name: str) -> tuple[CatalogEntry, ProgramSpec | None]:
    """The model that a name means, and the program where it names one.

    Raises NotFound naming the known models, or the model's servables.
    """
    model_id, _, program_id = name.rpartition("/")
    if not model_id or name in catalog.model_ids:
        return catalog.get(name), None
    entry = catalog.get(model_id)
    program = entry.programs.get(program_id)
    if program is None:
        allowed = _names(servables_of(entry))
        raise NotFound(
            f"model_id is {name!r}; {model_id} serves {allowed}",
            reason="MODEL_NOT_FOUND",
            subject="model_id",
            attributes={"allowed": allowed},
        )
    return entry, program


def named_program(
    program: ProgramSpec | None, name: str, kind: RequestKind | None, program_id: str
) -> tuple[RequestKind | None, str]:
    """Kind and program of a request whose model is named so; what it says of them itself agrees.

    Raises InvalidField when it says another kind or another program than its model's name.
    """
    if program is None:
        return kind, program_id
    if program_id not in ("", program.program_id):
        raise InvalidField("program_id", program_id, f"{program.program_id}, as {name} says")
    if kind not in (None, program.request_kind):
        raise InvalidField("kind", kind, f"{program.request_kind.value}, as {name} says")
    return program.request_kind, program.program_id


def _names(servables: Iterable[Servable]) -> str:
    return ", ".join(servable.servable_id for servable in servables)
