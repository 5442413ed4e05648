"""Sessions: opened, given texts, named by requests that their memory conditions, closed."""

import asyncio

import pytest

from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.client import AsyncClient, Client, Generation, SessionInfo
from fastvideo.errors import FailedPrecondition
from fastvideo.requests.types import RequestStatus, TextPart
from fastvideo.rpc.channel import open_channel
from tests.e2e.stack import Stack, poll

PROMPT = "a purple two moving down"
# The later ones where a busy machine takes longer from one call to the next.
QUIET_S = (4, 30)


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


@pytest.mark.slow
@pytest.mark.row("SES-03", "SES-10")
def test_what_a_session_remembers_reaches_the_text_encoder(stack: Stack) -> None:
    """The joined prompt gives the bits of the same text sent plainly, and other bits than the
    user's words alone; a replay of it gives them again."""
    with Client(stack.gateway) as client:
        with client.session(conditioning="memory") as session:
            pushed = session.push_text("black background")
            first = session.generate("a red three", steps=2, seed=4)
            second = session.generate(PROMPT, steps=4, seed=4)
        part = second.spec.inputs[0]
        assert isinstance(part, TextPart)
        assert part.text == f"black background. a red three. {PROMPT}"
        named = [(one.source_id, part.text[one.start : one.stop]) for one in part.segments]
        assert named == [
            (pushed.push_id, "black background"),
            (first.request_id, "a red three"),
            ("", PROMPT),
        ]
        assert second.prompt == PROMPT
        plainly = client.generate(part.text, steps=4, seed=4)
        alone = client.generate(PROMPT, steps=4, seed=4)
        assert second.latents_digest == plainly.latents_digest != alone.latents_digest
        assert client.replay("execution", second.request_id).equal


@pytest.mark.slow
def test_texts_are_pushed_from_the_command_line(stack: Stack) -> None:
    opened = stack.run("session", "create", "--conditioning", "pushed", "--json").json
    session_id = opened["session_id"]
    pushed = stack.run("session", "push", session_id, "black background", "--json").json
    assert (pushed["role"], pushed["text"]) == ("context", "black background")
    shown = stack.run("session", "get", session_id)
    assert "black background" in shown.out
    refused = stack.run("session", "push", session_id, "x", "--role", "system")
    assert refused.code != 0
    assert "role" in refused.err
    wrong = stack.run("session", "create", "--conditioning", "all")
    assert wrong.code != 0
    assert "independent, pushed, memory" in wrong.err


async def _begun(client: AsyncClient) -> tuple[SessionInfo, Generation]:
    """A session that ends soon once it is quiet, with a text and a request that runs."""
    for quiet_s in QUIET_S:
        session = await client.create_session(conditioning="memory", inactivity_timeout_s=quiet_s)
        try:
            await client.push_text(session.session_id, "black background")
            made = await client.submit(PROMPT, steps=60, session_id=session.session_id)
        except FailedPrecondition:
            continue
        return session, made
    raise AssertionError(f"no call comes within {QUIET_S[-1]} s of the one before")


@pytest.mark.row("SES-12")
async def test_an_inactive_session_ends_and_no_worker_holds_anything_of_it(stack: Stack) -> None:
    async with AsyncClient(stack.gateway) as client, asyncio.timeout(90):
        session, made = await _begun(client)
        # As long as it works it is not quiet, however long that takes.
        ended = await client.wait(made.request_id)
        assert ended.status is RequestStatus.COMPLETED
        while (state := await client.get_session(session.session_id)).close_reason == "":
            await asyncio.sleep(0.1)
        assert state.close_reason == "inactive"
        assert state.closed_at is not None
        assert ended.ended_at is not None
        quiet_s = (state.closed_at - ended.ended_at).total_seconds()
        assert quiet_s >= session.inactivity_timeout_s
        assert (state.prompt_memory, state.context_texts, state.cancel_scopes) == ((), (), ())
        for call in (
            client.submit(PROMPT, session_id=session.session_id),
            client.push_text(session.session_id, "again"),
        ):
            with pytest.raises(FailedPrecondition) as caught:
                await call
            assert (caught.value.reason, caught.value.subject) == ("SESSION_CLOSED", "session_id")
    # Nor does a worker hold a loop, a claim or a value any more.
    async with open_channel(stack.address("worker-1")) as channel, asyncio.timeout(60):
        worker = worker_pb2_grpc.WorkerServiceStub(channel)
        while True:
            health = await worker.Health(worker_pb2.HealthRequest())
            assert health.memory_budget_bytes["activations"] > 0
            held = [health.memory_bytes.get(pool, 0) for pool in ("activations", "staging")]
            if (health.loops, *held) == (0, 0, 0):
                return
            await asyncio.sleep(0.1)
