"""Replays of a running stack: states, decisions and runs, by the command line and by the client."""

import asyncio
import json
from pathlib import Path

import pytest

from fastvideo.client import AsyncClient
from fastvideo.replay.types import ReplayKind
from fastvideo.requests.types import RequestState, SamplingOverrides
from tests.e2e.stack import Stack

ASKED = [("a red three moving left", 4), ("blue digit seven moves up", 6), ("a green two", 9)]


@pytest.fixture(scope="module")
def ran(stack: Stack) -> list[RequestState]:
    """Requests that ran at once."""

    async def run() -> list[RequestState]:
        async with AsyncClient(stack.gateway) as client:
            return await asyncio.gather(
                *(
                    client.generate(prompt, sampling=SamplingOverrides(steps=steps, seed=steps))
                    for prompt, steps in ASKED
                )
            )

    return asyncio.run(run())


async def test_a_logged_run_has_every_step_and_who_ran_it(
    stack: Stack, ran: list[RequestState]
) -> None:
    async with AsyncClient(stack.gateway) as client:
        for state, (_, steps) in zip(ran, ASKED, strict=True):
            run = await client.logged_run(state.spec.request_id)
            denoised = [step for step in run.steps if step.node_id == "denoise"]
            assert [step.step_range.stop for step in denoised] == list(range(1, steps + 1))
            assert all(step.state_digest for step in denoised)
            assert run.latents_digest == state.latents_digest
            assert run.instance.model_id == state.spec.model_id
            assert run.instance.weights_version
            assert run.fingerprint
            assert run.traceparent


def test_what_is_served_is_the_fold_of_the_log(stack: Stack, ran: list[RequestState]) -> None:
    whole = stack.run("replay", "state", "--json")
    assert whole.code == 0, whole.err
    assert whole.json["equal"]
    assert int(whole.json["compared"]) >= len(ran)
    digests = whole.json["digests"]
    assert digests["requests"] == digests["requests served"]
    for state in ran:
        one = stack.run("replay", "state", state.spec.request_id, "--json")
        assert one.code == 0, one.err
        shown = json.loads(one.json["comparisons"][0]["detail"])
        assert shown["status"] == "REQUEST_STATUS_COMPLETED"
        artifact = state.artifacts[0].artifact_id
        assert stack.run("replay", "state", artifact, "--json").json["equal"]


async def test_an_earlier_offset_shows_what_was_known_there(
    stack: Stack, ran: list[RequestState]
) -> None:
    request_id = ran[0].spec.request_id
    events = await stack.log(f"request-{request_id}")
    middle = events[len(events) // 2]
    told = stack.run(
        *("replay", "state", request_id, "--json"),
        *("--until", f"{middle.partition}:{middle.offset}"),
    )
    assert told.code == 0, told.err
    shown = json.loads(told.json["comparisons"][0]["detail"])
    assert int(shown["last_sequence"]) == middle.stream_version


def test_the_scheduler_decides_the_same_again(stack: Stack, ran: list[RequestState]) -> None:
    shard = stack.run("replay", "decision", "--json")
    assert shard.code == 0, shard.out + shard.err
    assert shard.json["equal"]
    assert shard.json["promise"]["kind"] == "bits"
    one = stack.run("replay", "decision", ran[1].spec.request_id, "--json")
    assert one.code == 0, one.out
    assert int(one.json["compared"]) < int(shard.json["compared"])
    assert one.json["original_traceparent"]


def test_another_policy_is_simulated_over_what_came(
    stack: Stack, ran: list[RequestState], tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("batch_units_max: 1\n")
    told = stack.run("replay", "decision", "--policy", str(policy))
    assert told.code == 0, told.out + told.err
    assert told.out.startswith("what if")
    assert {"logged", "logged_simulated", "what_if"} <= set(told.out.split())


def test_a_request_gives_the_same_bits_again(stack: Stack, ran: list[RequestState]) -> None:
    told = stack.run("replay", "execution", ran[0].spec.request_id)
    assert told.code == 0, told.out + told.err
    assert told.out.startswith("equal")
    assert "promised   bits" in told.out


def test_a_request_gives_the_same_bits_on_the_caller_s_machine(
    stack: Stack, ran: list[RequestState]
) -> None:
    told = stack.run("replay", "execution", ran[0].spec.request_id, "--here", "--json")
    assert told.code == 0, told.out + told.err
    assert told.json["equal"]


def test_what_cannot_be_replayed_is_an_error_and_no_difference(
    stack: Stack, tmp_path: Path
) -> None:
    unknown = stack.run("replay", "execution", "req_nobody", "--json")
    assert unknown.code == 2
    assert unknown.json["error"]["reason"] == "NOT_FOUND"
    assert stack.run("replay", "state", "--until", "x").code == 2
    policy = tmp_path / "policy.yaml"
    policy.write_text("no_such_knob: 1\n")
    wrong = stack.run("replay", "decision", "--policy", str(policy))
    assert wrong.code == 2
    assert "no_such_knob" in wrong.err


async def test_a_client_is_told_how_far_a_replay_is(stack: Stack, ran: list[RequestState]) -> None:
    told: list[object] = []
    async with AsyncClient(stack.gateway) as client:
        report = await client.replay(
            ReplayKind.EXECUTION, ran[0].spec.request_id, on_told=told.append
        )
    assert report.equal
    assert told
