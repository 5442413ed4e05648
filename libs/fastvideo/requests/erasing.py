"""A request without what its tenant wrote."""

from dataclasses import replace

from fastvideo.requests.types import InputPart, RequestState, TextPart


def without_texts(state: RequestState) -> RequestState:
    """The state with empty texts, as a fold gives it once they are erased."""
    inputs = tuple(_blank(part) for part in state.spec.inputs)
    return replace(state, spec=replace(state.spec, inputs=inputs))


def _blank(part: InputPart) -> InputPart:
    return replace(part, text="") if isinstance(part, TextPart) else part
