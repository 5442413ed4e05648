"""A sample from the real stack: recorded, found by any field, traced after a restart, retraced."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fastvideo.client import Client
from fastvideo.media.tensors import decode_tensors
from fastvideo.requests.types import Capture, OutputSpec, SamplingOverrides
from fastvideo.scheduling.traces import BehaviorRecorded
from tests.e2e.stack import Stack, running_stack

PROMPT = "a red three moving left"
NOISY = SamplingOverrides(sampler="flow_sde", noise_level=0.6, steps=6, seed=11)
CAPTURING = OutputSpec(video=True, capture=Capture.BEHAVIOR)

REPLAY_S_MAX = 120.0

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """A stack that is stopped and started."""
    with running_stack() as stack:
        yield stack


def behaviors(stack: Stack, *where: str) -> list[Any]:
    conditions = [part for condition in where for part in ("--where", condition)]
    outcome = stack.run("log", "behaviors", *conditions, "--json")
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


@pytest.mark.row("TRL-17", "TRL-18", "TRL-27")
def test_a_sample_traces_to_policy_seeds_schedule_and_artifact_after_a_restart_too(
    own_stack: Stack,
) -> None:
    arguments = ("--sampler", "flow_sde", "--noise-level", "0.6", "--steps", "6", "--seed", "11")
    made = own_stack.generate(PROMPT, *arguments, "--capture", "behavior")
    plain = own_stack.generate(PROMPT, *arguments)
    assert made["latents_digest"] == plain["latents_digest"]
    [before] = behaviors(own_stack, f"request_id={made['id']}")
    assert behaviors(own_stack, f"request_id={plain['id']}") == []

    own_stack.down()
    own_stack.up()

    record = before["record"]
    policy = f"policy_version={record['policy_version']}"
    found = behaviors(own_stack, policy, "seeds=11", "guidance_settings=scale=3.0")
    assert found == [before]
    assert behaviors(own_stack, policy, "seeds=12") == []
    with Client(own_stack.gateway) as client:
        [behavior] = client.behaviors({"behavior_id": before["behavior_id"]})
        trajectory = decode_tensors(client.read_artifact(behavior.record.latents[0]))
        state = client.get(made["id"])
        again = client.generate(PROMPT, sampling=NOISY, outputs=CAPTURING)
        [repeated] = client.behaviors({"request_id": again.spec.request_id})
    check_traced(behavior, trajectory, {one.artifact_id for one in state.artifacts})
    # The seeds give the same sample in another process, days later.
    assert repeated.behavior_id != behavior.behavior_id
    assert repeated.record.trajectory_digest == behavior.record.trajectory_digest
    assert repeated.record.logprobs == behavior.record.logprobs


@pytest.mark.row("LAD-03")
def test_what_the_policy_gives_for_a_recorded_sample_is_what_it_gave(own_stack: Stack) -> None:
    with Client(own_stack.gateway) as client:
        made = client.generate(PROMPT, sampling=NOISY, outputs=CAPTURING)
        [behavior] = client.behaviors({"request_id": made.spec.request_id})
    # Beside a worker, and in a process of the caller's.
    for where in ((), ("--here",)):
        arguments = ("replay", "behavior", behavior.behavior_id, "--json", *where)
        outcome = own_stack.run(*arguments, timeout_s=REPLAY_S_MAX)
        assert outcome.code == 0, outcome.err
        report = outcome.json
        assert report["equal"], report["headline"]
        assert report["promise"]["kind"] == "bits"
        drawn = [one for one in report["comparisons"] if one["component"] == "policy"]
        assert [one["detail"] for one in drawn] == ["ratio 1.0"] * 5
        assert [float(one["found"]) for one in drawn] == list(behavior.record.logprobs)


def check_traced(
    behavior: BehaviorRecorded, trajectory: dict[str, torch.Tensor], artifacts: set[str]
) -> None:
    record = behavior.record
    assert record.seeds == (11,)
    assert (record.sampler, record.noise_level) == ("flow_sde", 0.6)
    assert record.weights_version
    assert set(record.artifact_references) <= artifacts
    assert trajectory["latents"].shape[0] == len(record.scheduler_trajectory) == 7
    assert trajectory["sigmas"].tolist() == list(record.scheduler_trajectory)
    assert trajectory["log_probs"].tolist() == list(record.logprobs)
    assert len(record.logprobs) == 5
    assert record.reward_inputs.keys() == {"prompt_sha256", "video"}
    assert PROMPT not in repr(record)
