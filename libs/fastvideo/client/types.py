"""What the client answers with, beside the types of the domain."""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from fastvideo.model.embedded import EMBEDDED_MODEL_ID
from fastvideo.model.specs import ModelSpec
from fastvideo.program.specs import ProgramSpec

T = TypeVar("T")

DEFAULT_MODEL_ID: Final = EMBEDDED_MODEL_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class ServableSummary:
    """A program or a workflow of a model; its id may stand where a model's does."""

    servable_id: str
    program_id: str
    # "program" or "workflow".
    kind: str
    capability: str
    # The program of its kind that serves when a request names none.
    is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """A model and whether a worker serves it now."""

    model_id: str
    family: str
    description: str
    capabilities: tuple[str, ...]
    # At least one warm worker has it.
    ready: bool
    # Why it is not deployed, and what to do; empty when it is.
    unavailable_reason: str
    # What can be asked of it by an id of its own.
    servables: tuple[ServableSummary, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """A model's card, whether a worker serves it now, and what it can be asked for."""

    spec: ModelSpec
    # SHA-256 of the card's content, hexadecimal.
    card_digest: str
    ready: bool
    # Why it is not deployed, and what to do; empty when it is.
    unavailable_reason: str
    programs: tuple[ProgramSpec, ...]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of a list, and the token that asks for the rest; an empty token says there is none."""

    items: tuple[T, ...]
    next_page_token: str = ""
