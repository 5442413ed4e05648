"""What a session adds to a prompt, and what gives way where it does not fit."""

from datetime import datetime, timedelta

import pytest

from fastvideo.errors import InvalidField
from fastvideo.requests.types import TextPart
from fastvideo.sessions.conditioning import (
    CONTEXT,
    PROMPT,
    PUSHED_CHARACTERS_MAX,
    Remembered,
    check_push,
    conditioning_texts,
    join_prompt,
    own_words,
)
from fastvideo.sessions.types import (
    PromptMemoryEntry,
    PushedText,
    SessionConditioning,
    SessionState,
    SessionStatus,
)

START = datetime.fromisoformat("2026-01-02T03:04:05+00:00")
OWN = TextPart(role=PROMPT, text="  a blue two ")
MEMORY = (
    Remembered(CONTEXT, "psh_1", "black background"),
    Remembered(CONTEXT, "psh_2", "night."),
    Remembered(PROMPT, "req_1", "a red three"),
    Remembered(PROMPT, "psh_3", "slower!"),
)


def anything(text: str) -> bool:
    return True


def state(conditioning: SessionConditioning | None) -> SessionState:
    return SessionState(
        session_id="s",
        status=SessionStatus.OPEN,
        conditioning=conditioning,
        context_texts=(PushedText(push_id="psh_1", role=CONTEXT, text="night", at=START),),
        prompt_memory=(
            PromptMemoryEntry(request_id="req_1", prompt="a red three", at=START),
            PromptMemoryEntry(prompt="", request_id="req_erased", at=START),
            PromptMemoryEntry(push_id="psh_2", prompt="slower", at=START + timedelta(seconds=1)),
        ),
        created_at=START,
        last_active_at=START,
    )


@pytest.mark.parametrize(
    ("conditioning", "sources"),
    [
        (None, []),
        (SessionConditioning.INDEPENDENT, []),
        (SessionConditioning.PUSHED, ["psh_1", "psh_2"]),
        (SessionConditioning.MEMORY, ["psh_1", "req_1", "psh_2"]),
    ],
)
def test_the_conditioning_says_what_joins(
    conditioning: SessionConditioning | None, sources: list[str]
) -> None:
    assert [one.source_id for one in conditioning_texts(state(conditioning))] == sources


def test_contexts_come_first_then_prompts_then_the_own_words_each_a_sentence() -> None:
    part = join_prompt(OWN, MEMORY, anything)
    assert part.text == "black background. night. a red three. slower!   a blue two "
    named = [(s.role, s.source_id, part.text[s.start : s.stop]) for s in part.segments]
    assert named == [
        *((one.role, one.source_id, one.text) for one in MEMORY),
        ("own", "", OWN.text),
    ]
    assert own_words(part) == OWN.text


def test_a_prompt_that_nothing_joins_is_left_as_it_is() -> None:
    assert join_prompt(OWN, (), anything) is OWN
    assert join_prompt(OWN, MEMORY, lambda text: text == OWN.text) is OWN
    assert own_words(OWN) == OWN.text


@pytest.mark.parametrize(
    ("room", "kept"),
    [
        (60, ["psh_1", "psh_2", "req_1", "psh_3"]),
        (57, ["psh_1", "psh_2", "psh_3"]),
        (40, ["psh_1", "psh_2"]),
        (25, ["psh_2"]),
        (19, []),
    ],
)
def test_the_oldest_prompts_give_way_first_then_the_oldest_contexts(
    room: int, kept: list[str]
) -> None:
    part = join_prompt(OWN, MEMORY, lambda text: len(text) <= room)
    assert [segment.source_id for segment in part.segments[:-1]] == kept
    assert len(part.text) <= room


@pytest.mark.parametrize(
    ("role", "text", "field"),
    [
        ("system", "x", "role"),
        ("", "x", "role"),
        (CONTEXT, "", "text"),
        (CONTEXT, " \n", "text"),
        (PROMPT, "x" * (PUSHED_CHARACTERS_MAX + 1), "text"),
        (PROMPT, "a\0b", "text"),
    ],
)
def test_what_cannot_be_pushed_is_refused_by_name(role: str, text: str, field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        check_push(role, text)
    assert caught.value.field == field


def test_a_text_of_the_largest_size_can_be_pushed() -> None:
    check_push(CONTEXT, "x" * PUSHED_CHARACTERS_MAX)
