"""The typed parts of a request against what a program takes."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from fastvideo.errors import InvalidField
from fastvideo.model.specs import ModelSpec
from fastvideo.program.specs import ProgramSpec
from fastvideo.requests.types import (
    ActionPart,
    AudioPart,
    ImagePart,
    InputPart,
    LatentPart,
    SamplingParams,
    TextPart,
    VideoPart,
)

PROMPT: Final = "prompt"
NEGATIVE_PROMPT: Final = "negative_prompt"
IMAGE: Final = "image"

IMAGE_TO_VIDEO: Final = "image_to_video"
"""The program that starts from an image."""

PARTS_MAX: Final = 16
ACTIONS_MAX: Final = 65_536
# Where a card declares no processor that bounds its prompt.
CHARACTERS_MAX_DEFAULT: Final = 10_000

_FIELD_OF_PART: Final[Mapping[type, str]] = MappingProxyType(
    {
        TextPart: "text",
        ImagePart: "image",
        VideoPart: "video",
        AudioPart: "audio",
        ActionPart: "action",
        LatentPart: "latent",
    }
)

# The part that carries each role; a role that is not here may come as any part.
_PART_OF_ROLE: Final[Mapping[str, type]] = MappingProxyType(
    {
        PROMPT: TextPart,
        NEGATIVE_PROMPT: TextPart,
        "text": TextPart,
        IMAGE: ImagePart,
        "video": VideoPart,
        "audio": AudioPart,
        "actions": ActionPart,
        "latents": LatentPart,
    }
)


def input_artifacts(inputs: Sequence[InputPart]) -> tuple[str, ...]:
    """Ids of the artifacts that the parts of a request name."""
    stored = ImagePart | VideoPart | AudioPart | LatentPart
    return tuple(part.artifact_id for part in inputs if isinstance(part, stored))


def resolve_inputs(
    parts: tuple[InputPart, ...], card: ModelSpec, program: ProgramSpec
) -> tuple[tuple[InputPart, ...], tuple[str, ...]]:
    """The parts that the program will see, and the roles among them that were left out.

    Of what a program takes, the negative prompt alone may be left out; it is then empty.
    Raises InvalidField.
    """
    if len(parts) > PARTS_MAX:
        raise InvalidField(
            "inputs", f"{len(parts)} parts", f"at most {PARTS_MAX} parts", reason="TOO_MANY_PARTS"
        )
    by_role: dict[str, InputPart] = {}
    for index, part in enumerate(parts):
        _check_part(f"inputs[{index}]", part, card, program)
        if part.role in by_role:
            raise InvalidField(
                f"inputs[{index}].{_field_of(part)}.role", part.role, "one part for each role"
            )
        by_role[part.role] = part
    defaulted = []
    for role in program.request_inputs:
        if role in by_role:
            continue
        if role != NEGATIVE_PROMPT:
            raise _missing(role, program)
        by_role[role] = TextPart(role=NEGATIVE_PROMPT, text="")
        defaulted.append(f"inputs.{role}")
    return tuple(by_role[role] for role in program.request_inputs), tuple(defaulted)


def check_tokens(
    parts: tuple[InputPart, ...], card: ModelSpec, count: Callable[[str], int]
) -> None:
    """Raise InvalidField for a text of more tokens than the card's processors take."""
    longest = tokens_max(card)
    for part in parts:
        if not longest or not isinstance(part, TextPart):
            continue
        tokens = count(part.text)
        if tokens > longest:
            raise InvalidField(
                part.role,
                f"{tokens} tokens",
                f"at most {longest} tokens with the end token",
                reason="PROMPT_TOO_LONG",
            )


def check_negative_prompt(parts: tuple[InputPart, ...], sampling: SamplingParams) -> None:
    """Raise InvalidField for a negative prompt that guidance would not use."""
    if sampling.guidance_scale > 1.0:
        return
    for part in parts:
        if isinstance(part, TextPart) and part.role == NEGATIVE_PROMPT and part.text.strip():
            raise InvalidField(
                NEGATIVE_PROMPT, part.text, "none at guidance_scale 1, where it changes nothing"
            )


def check_characters(path: str, text: str) -> None:
    """Raise InvalidField, PROMPT_NOT_TEXT, for characters that no text has."""
    bad = next((c for c in text if c == "\0" or "\ud800" <= c <= "\udfff"), None)
    if bad is not None:
        raise InvalidField(
            path,
            f"U+{ord(bad):04X} at {text.index(bad)}",
            "Unicode text without NUL and lone surrogates",
            reason="PROMPT_NOT_TEXT",
        )


def tokens_max(card: ModelSpec) -> int:
    """The longest prompt that the card's processors take, in tokens; 0 is no bound."""
    return min((p.max_tokens for p in card.processors.values() if p.max_tokens), default=0)


def characters_max(card: ModelSpec) -> int:
    """The longest prompt that the card's processors take, in characters."""
    bounds = [p.max_characters for p in card.processors.values() if p.max_characters]
    return min(bounds, default=CHARACTERS_MAX_DEFAULT)


def _missing(role: str, program: ProgramSpec) -> InvalidField:
    kind = _FIELD_OF_PART.get(_PART_OF_ROLE.get(role, object), "input")
    return InvalidField(
        "inputs",
        f"without {role}",
        f'program {program.program_id} needs a {kind} part with role "{role}"',
        reason=f"{role.upper()}_REQUIRED",
    )


def _check_part(path: str, part: InputPart, card: ModelSpec, program: ProgramSpec) -> None:
    taken = ", ".join(program.request_inputs) or "none"
    if type(part) not in _FIELD_OF_PART:
        allowed = f"a part of one of: {', '.join(_FIELD_OF_PART.values())}"
        raise InvalidField(path, type(part).__name__, allowed, reason="UNKNOWN_PART")
    path = f"{path}.{_field_of(part)}"
    if part.role not in program.request_inputs:
        raise InvalidField(
            f"{path}.role",
            part.role,
            f"what program {program.program_id} takes: {taken}",
            reason="PART_NOT_TAKEN",
        )
    expected = _PART_OF_ROLE.get(part.role)
    if expected is not None and not isinstance(part, expected):
        allowed = f"a {_FIELD_OF_PART[expected]} part for role {part.role}"
        raise InvalidField(path, _field_of(part), allowed, reason="PART_NOT_TAKEN")
    _check_content(path, part, card)


def _check_content(path: str, part: InputPart, card: ModelSpec) -> None:
    match part:
        case TextPart():
            _check_text(f"{path}.text", part, characters_max(card))
        case ActionPart(values=values):
            if not 1 <= len(values) <= ACTIONS_MAX or not all(map(math.isfinite, values)):
                raise InvalidField(
                    f"{path}.values",
                    f"{len(values)} values",
                    f"1 to {ACTIONS_MAX} finite numbers",
                )
        case ImagePart() | VideoPart() | AudioPart() | LatentPart():
            if not part.artifact_id:
                raise InvalidField(f"{path}.artifact_id", "", "the id of a stored artifact")


def _check_text(path: str, part: TextPart, longest: int) -> None:
    text = part.text
    if not isinstance(text, str):
        raise InvalidField(path, text, "text")
    if len(text) > longest:
        raise InvalidField(
            path,
            f"{len(text)} characters",
            f"a {part.role} of at most {longest} characters",
            reason="PROMPT_TOO_LONG",
        )
    if part.role == PROMPT and not text.strip():
        allowed = f"a prompt of 1 to {longest} characters, not white space alone"
        raise InvalidField(path, text, allowed, reason="PROMPT_EMPTY")
    check_characters(path, text)


def _field_of(part: InputPart) -> str:
    return _FIELD_OF_PART[type(part)]
