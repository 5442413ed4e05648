"""Sessions from the command line: opened, named by a request, closed."""

from tests.e2e.stack import Stack, poll

PROMPT = "a purple two moving down"


def test_a_session_remembers_the_prompts_of_its_requests(stack: Stack) -> None:
    opened = stack.run("session", "create", "--json").json
    session_id = opened["session_id"]
    assert opened["status"] == "SESSION_STATUS_OPEN"
    record = stack.generate(PROMPT, "--steps", "2", "--session", session_id)

    def remembered() -> list[str] | None:
        state = stack.run("session", "get", session_id, "--json").json
        prompts = [entry["prompt"] for entry in state["prompt_memory"]]
        return prompts or None

    assert poll("the prompt is remembered", remembered) == [PROMPT]
    listed = stack.run("request", "list", "--session", session_id, "--json").json
    assert [found["id"] for found in listed] == [record["id"]]
    sessions = stack.run("session", "list", "--json").json
    assert session_id in {state["session_id"] for state in sessions}

    closed = stack.run("session", "close", session_id, "--json").json
    assert closed["status"] == "SESSION_STATUS_CLOSED"
    refused = stack.run("generate", PROMPT, "--session", session_id)
    assert refused.code == 1
    assert session_id in refused.err


def test_a_session_that_does_not_exist_is_said_so(stack: Stack) -> None:
    for verb in ("get", "close"):
        outcome = stack.run("session", verb, "ses_nowhere")
        assert outcome.code == 1
        assert "ses_nowhere" in outcome.err
