"""A request that is to be routed, from a file: as little as a router has to know.

model: moving-digits        # or moving-digits/image_to_video
prompt: a red three
sampling: {steps: 20, width: 64}
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fastvideo.deployment.catalog import Catalog
from fastvideo.deployment.servables import find_servable, named_program
from fastvideo.errors import InvalidField
from fastvideo.model.documents import InvalidDocument, parse, read_document
from fastvideo.requests.draft import RequestDraft
from fastvideo.requests.inputs import IMAGE, IMAGE_TO_VIDEO, NEGATIVE_PROMPT, PROMPT
from fastvideo.requests.types import (
    ImagePart,
    InputPart,
    RequestKind,
    RequestSpec,
    SamplingOverrides,
    TextPart,
)
from fastvideo.requests.validation import resolve_request

_MOMENT: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedDocument:
    """The file."""

    model: str
    program: str = ""
    kind: RequestKind | None = None
    prompt: str = ""
    negative_prompt: str | None = None
    # The artifact that a video starts from.
    image: str = ""
    sampling: SamplingOverrides = field(default_factory=SamplingOverrides)
    session_id: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """A request with all of its defaults, and what its program needs an engine to be able to do."""

    spec: RequestSpec
    capability: str


def read_routed(path: Path, catalog: Catalog) -> Routed:
    """The request of a file, resolved against its model's card.

    Raises InvalidDocument for the file, NotFound for the model, and InvalidField for what the
    model does not take.
    """
    try:
        document = parse(RoutedDocument, read_document(path), path.name)
    except OSError as error:
        fault = error.strerror or str(error)
        raise InvalidDocument(path.name, {"file": f"cannot be read: {fault}"}) from error
    return routed(document, catalog)


def routed(document: RoutedDocument, catalog: Catalog) -> Routed:
    """The request of a document. Raises as `read_routed` does."""
    entry, program = find_servable(catalog, document.model)
    program_id = document.program or (IMAGE_TO_VIDEO if document.image and not program else "")
    kind, program_id = named_program(program, document.model, document.kind, program_id)
    draft = RequestDraft(
        model_id=entry.card.model_id,
        inputs=tuple(_inputs(document)),
        kind=kind,
        program_id=program_id,
        sampling=document.sampling,
        session_id=document.session_id,
        priority=document.priority,
    )
    # Whether the weights are here is no matter: they need be where it goes.
    spec = resolve_request(
        draft,
        replace(entry, unavailable_reason=""),
        request_id="req_routed",
        tenant_id="",
        random_seed=0,
        now=_MOMENT,
    )
    chosen = entry.programs.get(spec.program_id)
    if chosen is None:
        raise InvalidField("program", spec.program_id, ", ".join(entry.programs))
    return Routed(spec=spec, capability=chosen.capability)


def _inputs(document: RoutedDocument) -> list[InputPart]:
    texts = {PROMPT: document.prompt or None, NEGATIVE_PROMPT: document.negative_prompt}
    parts: list[InputPart] = [
        TextPart(role=role, text=text) for role, text in texts.items() if text is not None
    ]
    if document.image:
        parts.append(ImagePart(role=IMAGE, artifact_id=document.image))
    return parts
