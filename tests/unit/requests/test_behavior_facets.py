from dataclasses import fields, replace

import pytest

from fastvideo.errors import InvalidField
from fastvideo.model.caching import CacheClass, CacheLookup, CacheOutcome
from fastvideo.model.specs import ParallelPlan
from fastvideo.requests.behavior import BehaviorRecord, behavior_id_of, policy_version_of
from fastvideo.requests.behavior_facets import CONDITIONS_MAX, FIELDS, facets_of, wanted_facets

RECORD = BehaviorRecord(
    request_id="req_1",
    session_id="ses_1",
    model_id="digits",
    policy_version="w1+style@2",
    weights_version="w1",
    adapter_versions={"style": "2"},
    program_id="text_to_video",
    loop_id="denoise",
    seeds=(7, 8),
    scheduler_trajectory=(0.5, 0.0),
    timesteps=(500.0,),
    latents=("art_1",),
    logprobs=(-1.25,),
    action_tokens=(3,),
    sampled_tokens=(4,),
    guidance_settings={"scale": "3.0"},
    reward_inputs={"video": "art_2"},
    reward_outputs={"score": 0.5},
    cache_assumptions=(
        CacheLookup(
            cache_class=CacheClass.TEXT_ENCODER_OUTPUT, key_digest="k", outcome=CacheOutcome.HIT
        ),
    ),
    precision="float32",
    parallel_plan=ParallelPlan(axes={"data": 2}),
    attention_backend="native",
    deterministic_flags={"tf32_matmul": False},
    artifact_references=("art_1", "art_2"),
    sample_index=1,
    attempt=2,
    trajectory_digest="d1",
    sampler="flow_sde",
    noise_level=0.7,
    fingerprint={"torch": "2.13"},
)

ASKED = {
    "behavior_id": "bhv_1",
    "request_id": "req_1",
    "session_id": "ses_1",
    "model_id": "digits",
    "policy_version": "w1+style@2",
    "weights_version": "w1",
    "adapter_versions": "style=2",
    "program_id": "text_to_video",
    "loop_id": "denoise",
    "seeds": "8",
    "scheduler_trajectory": "0.50",
    "timesteps": "500",
    "latents": "art_1",
    "logprobs": "-1.25",
    "action_tokens": "3",
    "sampled_tokens": "04",
    "guidance_settings": "scale=3.0",
    "reward_inputs": "video=art_2",
    "reward_outputs": "score=0.50",
    "cache_assumptions": "outcome=hit",
    "precision": "float32",
    "parallel_plan": "axes=data=2",
    "attention_backend": "native",
    "deterministic_flags": "tf32_matmul=false",
    "artifact_references": "art_2",
    "sample_index": "1",
    "attempt": "2",
    "trajectory_digest": "d1",
    "sampler": "flow_sde",
    "noise_level": "0.70",
    "fingerprint": "torch=2.13",
}


@pytest.mark.row("TRL-17")
@pytest.mark.parametrize("field", FIELDS)
def test_every_field_can_be_asked_for(field: str) -> None:
    have = set(facets_of("bhv_1", RECORD))
    assert set(wanted_facets({field: ASKED[field]})) <= have
    other = "no=thing" if "=" in ASKED[field] else "31337"
    if field == "reward_outputs":
        other = "score=0.1"
    assert not set(wanted_facets({field: other})) <= have


def test_every_field_of_the_record_is_there() -> None:
    assert set(ASKED) == {field.name for field in fields(BehaviorRecord)} | {"behavior_id"}
    assert set(facets_of("bhv_1", RECORD)) >= set(wanted_facets(dict(list(ASKED.items())[:16])))


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ({"colour": "red"}, "a field of the record"),
        ({"guidance_settings": "3.0"}, "key=value"),
        ({"seeds": "x"}, "a whole number"),
        ({"noise_level": "much"}, "a number"),
        ({"reward_outputs": "score=much"}, "a number"),
        ({f"f{i}": "" for i in range(CONDITIONS_MAX + 1)}, "at most 16"),
    ],
)
def test_what_cannot_be_asked_is_refused(where: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidField, match=says):
        wanted_facets(where)


def test_a_value_of_any_length_is_a_word_that_an_index_takes() -> None:
    long = replace(RECORD, precision="x" * 100_000)
    assert max(map(len, facets_of("b", long))) <= 500
    assert set(wanted_facets({"precision": "x" * 100_000})) <= set(facets_of("b", long))
    assert not set(wanted_facets({"precision": "x" * 99_999})) <= set(facets_of("b", long))


def test_a_samples_id_and_its_policy_follow_from_what_they_are() -> None:
    assert behavior_id_of("r", "denoise", 0) == behavior_id_of("r", "denoise", 0)
    assert behavior_id_of("r", "denoise", 0) != behavior_id_of("r", "denoise", 1)
    assert policy_version_of("w1", {}) == "w1"
    assert policy_version_of("w1", {"b": "2", "a": "1"}) == "w1+a@1+b@2"
