"""A request as a caller gives it, before any default has been taken."""

from dataclasses import dataclass, field
from datetime import datetime

from fastvideo.requests.types import InputPart, OutputSpec, RequestKind, SamplingOverrides


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDraft:
    """What a caller asked for; None and empty mean "left out"."""

    model_id: str
    inputs: tuple[InputPart, ...] = ()
    # None means generation.
    kind: RequestKind | None = None
    # Empty takes the model's program for the kind.
    program_id: str = ""
    sampling: SamplingOverrides = field(default_factory=SamplingOverrides)
    # None, or nothing chosen, takes what the program hands out by default.
    outputs: OutputSpec | None = None
    session_id: str = ""
    # Larger goes first.
    priority: int = 0
    deadline: datetime | None = None
    # The only weights that may serve it; empty means any.
    required_weights_version: str = ""
