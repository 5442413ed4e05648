"""What a session adds to the prompts of its requests: pure functions over its memory.

A joined prompt is what was remembered, then the request's own words: first the contexts, then the
prompts, each oldest first, each a sentence, one space between them. Where the whole would not fit
the model, the oldest prompts are left out first, and once no prompt is left the oldest contexts;
the request's own words always stay.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fastvideo.errors import InvalidField
from fastvideo.requests.inputs import PROMPT as PROMPT
from fastvideo.requests.inputs import check_characters
from fastvideo.requests.types import RequestSpec, TextPart, TextSegment
from fastvideo.sessions.types import SessionConditioning, SessionState

CONTEXT: Final = "context"
OWN: Final = "own"

ROLES: Final = (CONTEXT, PROMPT)
"""What a pushed text may be."""

PUSHED_CHARACTERS_MAX: Final = 2_000

_SENTENCE_ENDS: Final = ".!?…,;:。！？"


@dataclass(frozen=True, slots=True)
class Remembered:
    """A text of a session's memory."""

    role: str
    # The request or the push that it came with.
    source_id: str
    text: str


def check_push(role: str, text: str) -> None:
    """Raise InvalidField naming `role` or `text` for what cannot be pushed."""
    if role not in ROLES:
        raise InvalidField("role", role, " or ".join(ROLES))
    if not text.strip() or len(text) > PUSHED_CHARACTERS_MAX:
        shown = f"{len(text)} characters" if text.strip() else text
        allowed = f"1 to {PUSHED_CHARACTERS_MAX} characters, not white space alone"
        raise InvalidField("text", shown, allowed, reason="TEXT_LENGTH")
    check_characters("text", text)


def conditioning_texts(state: SessionState) -> tuple[Remembered, ...]:
    """What joins the prompt of the session's next request, in the order in which it stands."""
    mode = state.conditioning or SessionConditioning.INDEPENDENT
    if mode is SessionConditioning.INDEPENDENT:
        return ()
    contexts = (Remembered(CONTEXT, text.push_id, text.text) for text in state.context_texts)
    prompts = (
        Remembered(PROMPT, entry.push_id or entry.request_id, entry.prompt)
        for entry in state.prompt_memory
        if entry.push_id or mode is SessionConditioning.MEMORY
    )
    # Texts of an erased tenant are empty.
    return tuple(one for one in (*contexts, *prompts) if one.text.strip())


def join_prompt(
    own: TextPart, remembered: Sequence[Remembered], fits: Callable[[str], bool]
) -> TextPart:
    """The prompt with as much of what is remembered as fits, each stretch of it named.

    `fits` says whether a text is one that the model takes; `own` must be one.
    """
    by_worth = [one for one in remembered if one.role == PROMPT]
    by_worth += [one for one in remembered if one.role != PROMPT]
    # The fewest that must be left out: fewer texts are never longer.
    low, high = 0, len(by_worth)
    while low < high:
        middle = (low + high) // 2
        if fits(_joined(own, _without(remembered, by_worth[:middle])).text):
            high = middle
        else:
            low = middle + 1
    kept = _without(remembered, by_worth[:low])
    return _joined(own, kept) if kept else own


def own_words(part: TextPart) -> str:
    """What the user wrote of a text, without what a session joined to it."""
    if not part.segments:
        return part.text
    return "".join(part.text[s.start : s.stop] for s in part.segments if s.role == OWN)


def own_prompt(spec: RequestSpec) -> str:
    """The prompt as the user wrote it; empty when the request has none."""
    texts = (part for part in spec.inputs if isinstance(part, TextPart))
    return next((own_words(part) for part in texts if part.role == PROMPT), "")


def _without(remembered: Sequence[Remembered], gone: Sequence[Remembered]) -> list[Remembered]:
    left_out = set(map(id, gone))
    return [one for one in remembered if id(one) not in left_out]


def _joined(own: TextPart, remembered: Sequence[Remembered]) -> TextPart:
    text = ""
    segments = []
    for one in remembered:
        words = one.text.strip()
        segments.append(_segment(one.role, one.source_id, text, words))
        text += words if words[-1] in _SENTENCE_ENDS else f"{words}."
        text += " "
    segments.append(_segment(OWN, "", text, own.text))
    return replace(own, text=text + own.text, segments=tuple(segments))


def _segment(role: str, source_id: str, before: str, words: str) -> TextSegment:
    start = len(before)
    return TextSegment(role=role, source_id=source_id, start=start, stop=start + len(words))
