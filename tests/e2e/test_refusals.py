"""Bad input is refused at the door, by name, and leaves nothing behind."""

import pytest

from fastvideo.client import Client
from tests.e2e.stack import Stack

PROMPT = "a red three moving left"


def newest(stack: Stack) -> list[str]:
    """The id of the request that was accepted last; whether it has ended is another matter."""
    with Client(stack.gateway) as client:
        return [state.request_id for state in client.list(page_size=1).items]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((PROMPT, "--model", "no-such-model"), "no-such-model"),
        (("",), "prompt"),
        (("word " * 20_000,), "prompt"),
        ((PROMPT, "--size", "63x64"), "width"),
        ((PROMPT, "--size", "64x63"), "height"),
        ((PROMPT, "--size", "0x0"), "width"),
        ((PROMPT, "--steps", "0"), "steps"),
        ((PROMPT, "--steps", "-1"), "steps"),
        ((PROMPT, "--steps", "1000000"), "steps"),
        ((PROMPT, "--seed", "-1"), "seed"),
        ((PROMPT, "--seed", str(2**64)), "seed"),
        ((PROMPT, "--guidance", "nan"), "guidance_scale"),
        ((PROMPT, "--guidance", "inf"), "guidance_scale"),
        ((PROMPT, "--guidance", "-1"), "guidance_scale"),
        ((PROMPT, "--frames", "8"), "num_frames"),
        ((PROMPT, "--fps", "0"), "fps"),
        ((PROMPT, "--session", "no-such-session"), "session"),
    ],
)
def test_bad_input_exits_1_names_the_field_and_stores_nothing(
    stack: Stack, arguments: tuple[str, ...], named: str
) -> None:
    before = newest(stack)
    outcome = stack.run("generate", "--json", *arguments)
    assert outcome.code == 1
    assert outcome.json["error"]["message"]
    [line] = outcome.err.splitlines()
    assert line.startswith("error: ")
    assert named in line
    assert len(line) < 1000
    assert newest(stack) == before


def test_a_request_that_does_not_exist_is_said_so(stack: Stack) -> None:
    for verb in ("get", "cancel", "watch"):
        outcome = stack.run("request", verb, "req_nowhere")
        assert outcome.code == 1
        assert "req_nowhere does not exist" in outcome.err


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_computed(
    stack: Stack,
) -> None:
    outcome = stack.run("generate", PROMPT, "-o", "/proc/nowhere/out.mp4")
    assert outcome.code == 1
    assert "--output" in outcome.err


def test_no_gateway_is_one_clear_line(stack: Stack) -> None:
    outcome = stack.run("models", "--gateway", "127.0.0.1:1")
    assert outcome.code == 1
    assert len(outcome.err.splitlines()) == 1
    assert "127.0.0.1:1" in outcome.err
    assert "Traceback" not in outcome.err
