"""Every field of a request is honoured, or refused by name."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.errors import FailedPrecondition, InvalidField
from fastvideo.model.specs import CapabilityMatrix, ParameterSpec
from fastvideo.requests.draft import RequestDraft
from fastvideo.requests.parameters import check_parameter, nearest_allowed
from fastvideo.requests.types import (
    Capture,
    ImagePart,
    LatentPart,
    OutputSpec,
    RequestKind,
    RequestSpec,
    SamplingOverrides,
    SamplingParams,
    TextPart,
)
from fastvideo.requests.validation import resolve_request

Resolve = Callable[..., RequestSpec]

PROMPT = TextPart(role="prompt", text="a red three moving left")
NEGATIVE = TextPart(role="negative_prompt", text="blurred")


@pytest.fixture
def resolve(entry: CatalogEntry, now: datetime) -> Resolve:
    def call(*, seed: int = 7, **fields: Any) -> RequestSpec:
        draft = RequestDraft(model_id="digits", **{"inputs": (PROMPT,), **fields})
        return resolve_request(
            draft, entry, request_id="req_1", tenant_id="t", random_seed=seed, now=now
        )

    return call


PARAMETERS = SamplingParams.__dataclass_fields__.keys()


@pytest.mark.row("MOD-13")
def test_what_is_left_out_takes_the_cards_default_and_is_listed(resolve: Resolve) -> None:
    spec = resolve(seed=7)
    assert spec.sampling == SamplingParams(
        width=48,
        height=48,
        num_frames=9,
        fps=8,
        steps=20,
        guidance_scale=3.0,
        flow_shift=3.0,
        seed=7,
    )
    assert spec.inputs == (PROMPT, TextPart(role="negative_prompt", text=""))
    assert spec.outputs == OutputSpec(video=True)
    assert spec.program_id == "text_to_video"
    assert spec.kind is RequestKind.GENERATION
    assert set(spec.defaulted) == {
        "kind",
        "program_id",
        "inputs.negative_prompt",
        "outputs",
        *(f"sampling.{name}" for name in PARAMETERS),
    }


def test_a_negative_prompt_that_guidance_would_not_use_is_refused(resolve: Resolve) -> None:
    unguided = SamplingOverrides(guidance_scale=1.0)
    with pytest.raises(InvalidField, match="changes nothing") as caught:
        resolve(inputs=(PROMPT, NEGATIVE), sampling=unguided)
    assert caught.value.field == "negative_prompt"
    resolve(inputs=(PROMPT, TextPart(role="negative_prompt", text="  ")), sampling=unguided)


def test_what_is_given_is_used_and_not_listed(resolve: Resolve, now: datetime) -> None:
    sampling = SamplingOverrides(
        width=64,
        height=32,
        num_frames=13,
        fps=12,
        steps=4,
        guidance_scale=1.5,
        flow_shift=5.5,
        seed=2**53 - 1,
        sampler="flow_sde",
        noise_level=0.4,
    )
    spec = resolve(
        kind=RequestKind.GENERATION,
        program_id="text_to_video",
        inputs=(NEGATIVE, PROMPT),
        sampling=sampling,
        outputs=OutputSpec(sheet=True, latents=True),
        session_id="ses_1",
        priority=-3,
        deadline=now + timedelta(seconds=1),
    )
    for name in PARAMETERS:
        assert getattr(spec.sampling, name) == getattr(sampling, name)
    assert spec.inputs == (PROMPT, NEGATIVE)
    assert spec.outputs == OutputSpec(sheet=True, latents=True)
    assert (spec.session_id, spec.priority, spec.tenant_id) == ("ses_1", -3, "t")
    assert spec.deadline == now + timedelta(seconds=1)
    assert spec.card_digest == "d1"
    assert spec.defaulted == ()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("width", 63, "16 to 256, multiples of 16; nearest: 48 or 64"),
        ("width", 0, "nearest: 16"),
        ("height", -16, "nearest: 16"),
        ("height", 10**30, "nearest: 256"),
        ("num_frames", 8, "1 to 49, 1 plus a multiple of 4; nearest: 5 or 9"),
        ("num_frames", 50, "nearest: 49"),
        ("fps", 0, "1 to 60, whole numbers; nearest: 1"),
        ("steps", 0, "1 to 1000, whole numbers; nearest: 1"),
        ("steps", 2.5, "whole numbers"),
        ("steps", True, "whole numbers"),
        ("steps", "4", "whole numbers"),
        ("guidance_scale", math.nan, "1 to 20"),
        ("guidance_scale", math.inf, "1 to 20"),
        ("guidance_scale", -math.inf, "1 to 20"),
        ("guidance_scale", 0.5, "1 to 20; nearest: 1"),
        ("flow_shift", 0.0, "0.1 to 20; nearest: 0.1"),
        ("seed", -1, "0 to 9007199254740991, whole numbers; nearest: 0"),
        ("seed", 2**53, "nearest: 9007199254740991"),
        ("sampler", "euler", "unipc_multistep, flow_sde"),
        ("noise_level", 0.5, "0, or another sampler: flow_sde"),
    ],
)
def test_a_number_that_the_card_does_not_allow_is_refused(
    resolve: Resolve, name: str, value: Any, says: str
) -> None:
    with pytest.raises(InvalidField) as caught:
        resolve(sampling=SamplingOverrides(**{name: value}))
    assert caught.value.field == f"sampling.{name}"
    assert says in caught.value.allowed
    assert repr(value)[:70] in caught.value.message


@pytest.mark.parametrize("own", [None, "", "unipc_multistep"])
def test_the_cards_own_sampler_has_one_name_and_no_noise(resolve: Resolve, own: str | None) -> None:
    spec = resolve(sampling=SamplingOverrides(sampler=own, noise_level=0.0))
    assert (spec.sampling.sampler, spec.sampling.noise_level) == ("", 0.0)


def test_a_sampler_with_noise_takes_the_cards_level_or_one_within_its_range(
    resolve: Resolve,
) -> None:
    sampling = resolve(sampling=SamplingOverrides(sampler="flow_sde")).sampling
    assert (sampling.sampler, sampling.noise_level) == ("flow_sde", 0.7)
    for level in (1.5, -0.1, math.nan):
        with pytest.raises(InvalidField, match=r"sampling\.noise_level"):
            resolve(sampling=SamplingOverrides(sampler="flow_sde", noise_level=level))


def test_behavior_is_captured_where_a_loop_records_it(resolve: Resolve) -> None:
    asked = OutputSpec(sheet=True, capture=Capture.BEHAVIOR)
    assert resolve(outputs=asked).outputs == asked
    assert resolve(outputs=OutputSpec(capture=Capture.BEHAVIOR)).outputs.video
    with pytest.raises(InvalidField) as caught:
        resolve(
            kind=RequestKind.CONVERSION,
            inputs=(LatentPart(role="latents", artifact_id="a"),),
            outputs=OutputSpec(capture=Capture.BEHAVIOR),
        )
    assert (caught.value.field, caught.value.reason) == ("outputs.capture", "CAPTURE_NOT_OFFERED")


@given(width=st.integers(-(2**31), 2**31 - 1), height=st.integers(-(2**31), 2**31 - 1))
def test_a_size_is_used_exactly_or_refused_with_allowed_neighbours(width: int, height: int) -> None:
    spec = ParameterSpec(default_value=48, minimum=16, maximum=256, multiple_of=16)
    for value in (width, height):
        allowed = value % 16 == 0 and 16 <= value <= 256
        if allowed:
            assert check_parameter("size", value, spec, integral=True) == value
            continue
        with pytest.raises(InvalidField):
            check_parameter("size", value, spec, integral=True)
        for near in nearest_allowed(value, spec):
            assert check_parameter("size", near, spec, integral=True) == near


def text(role: str, value: str) -> TextPart:
    return TextPart(role=role, text=value)


@pytest.mark.parametrize(
    ("inputs", "field", "reason"),
    [
        ((), "inputs", "PROMPT_REQUIRED"),
        ((NEGATIVE,), "inputs", "PROMPT_REQUIRED"),
        ((text("prompt", ""),), "inputs[0].text.text", "PROMPT_EMPTY"),
        ((text("prompt", " \t\n\u3000"),), "inputs[0].text.text", "PROMPT_EMPTY"),
        ((text("prompt", "a" * 101),), "inputs[0].text.text", "PROMPT_TOO_LONG"),
        ((PROMPT, text("negative_prompt", "a" * 101)), "inputs[1].text.text", "PROMPT_TOO_LONG"),
        ((text("prompt", "a\0b"),), "inputs[0].text.text", "PROMPT_NOT_TEXT"),
        ((text("prompt", "a\ud800"),), "inputs[0].text.text", "PROMPT_NOT_TEXT"),
        ((PROMPT, PROMPT), "inputs[1].text.role", "INVALID_FIELD"),
        ((text("style", "noir"),), "inputs[0].text.role", "PART_NOT_TAKEN"),
        ((PROMPT, ImagePart(role="image", artifact_id="a")), "inputs[1].image.role",
         "PART_NOT_TAKEN"),
        ((ImagePart(role="prompt", artifact_id="a"),), "inputs[0].image", "PART_NOT_TAKEN"),
        (("a red three",), "inputs[0]", "UNKNOWN_PART"),
        ((PROMPT,) * 17, "inputs", "TOO_MANY_PARTS"),
    ],
)  # fmt: skip
@pytest.mark.row("REQ-02")
def test_a_part_that_is_wrong_or_not_taken_is_refused(
    resolve: Resolve, inputs: tuple[Any, ...], field: str, reason: str
) -> None:
    with pytest.raises(InvalidField) as caught:
        resolve(inputs=inputs)
    assert (caught.value.field, caught.value.reason) == (field, reason)
    assert caught.value.allowed


def test_a_stored_part_needs_the_id_of_an_artifact(resolve: Resolve) -> None:
    with pytest.raises(InvalidField, match=r"inputs\[0\].latent.artifact_id"):
        resolve(kind=RequestKind.CONVERSION, inputs=(LatentPart(role="latents"),))


def test_any_script_is_a_prompt(resolve: Resolve) -> None:
    prompt = text("prompt", "красная 三 🌊 e\u0301")
    assert resolve(inputs=(prompt,)).inputs[0] == prompt


def test_a_conversion_takes_latents_and_gives_a_video(resolve: Resolve) -> None:
    latents = LatentPart(role="latents", artifact_id="art_1")
    spec = resolve(kind=RequestKind.CONVERSION, inputs=(latents,))
    assert spec.program_id == "decode_latents"
    assert spec.inputs == (latents,)
    assert spec.outputs == OutputSpec(video=True)


def test_a_parameter_that_the_program_would_not_read_is_refused(resolve: Resolve) -> None:
    with pytest.raises(InvalidField) as caught:
        resolve(
            kind=RequestKind.CONVERSION,
            inputs=(LatentPart(role="latents", artifact_id="a"),),
            sampling=SamplingOverrides(steps=4),
        )
    assert (caught.value.field, caught.value.reason) == ("sampling.steps", "PARAMETER_NOT_TAKEN")


def test_an_output_that_the_program_cannot_give_is_refused(resolve: Resolve) -> None:
    with pytest.raises(InvalidField) as caught:
        resolve(
            kind=RequestKind.CONVERSION,
            inputs=(LatentPart(role="latents", artifact_id="a"),),
            outputs=OutputSpec(video=True, latents=True),
        )
    assert caught.value.field == "outputs.latents"
    assert "video, sheet" in caught.value.allowed


@pytest.mark.row("REQ-03")
def test_a_kind_or_program_that_the_model_lacks_is_refused(resolve: Resolve) -> None:
    with pytest.raises(InvalidField, match="conversion or generation") as caught:
        resolve(kind=RequestKind.SCORING)
    assert caught.value.field == "kind"
    with pytest.raises(InvalidField, match="text_to_video") as caught:
        resolve(program_id="image_to_video")
    assert caught.value.field == "program_id"
    with pytest.raises(InvalidField) as caught:
        resolve(program_id="decode_latents")
    assert caught.value.field == "program_id"


@pytest.mark.row("REQ-03")
def test_a_program_beyond_the_cards_capabilities_is_refused(
    entry: CatalogEntry, now: datetime
) -> None:
    card = replace(entry.card, capabilities=CapabilityMatrix(capabilities=("vae_decode",)))
    with pytest.raises(InvalidField) as caught:
        resolve_request(
            RequestDraft(model_id="digits", inputs=(PROMPT,)),
            replace(entry, card=card),
            request_id="r",
            tenant_id="t",
            random_seed=0,
            now=now,
        )
    assert caught.value.reason == "CAPABILITY_MISSING"


def test_a_model_that_cannot_be_served_says_what_to_do(entry: CatalogEntry, now: datetime) -> None:
    with pytest.raises(FailedPrecondition, match="put it at /models/digits") as caught:
        resolve_request(
            RequestDraft(model_id="digits", inputs=(PROMPT,)),
            replace(entry, unavailable_reason="put it at /models/digits"),
            request_id="r",
            tenant_id="t",
            random_seed=0,
            now=now,
        )
    assert caught.value.reason == "MODEL_UNAVAILABLE"


@pytest.mark.parametrize("priority", [-101, 101, 2**31 - 1])
def test_a_priority_outside_the_range_is_refused(resolve: Resolve, priority: int) -> None:
    with pytest.raises(InvalidField, match="-100 to 100"):
        resolve(priority=priority)


def test_a_deadline_in_the_past_is_refused(resolve: Resolve, now: datetime) -> None:
    for deadline in (now, now - timedelta(days=1), now.replace(tzinfo=None)):
        with pytest.raises(InvalidField) as caught:
            resolve(deadline=deadline)
        assert caught.value.field == "deadline"


@pytest.mark.row("LAY-05")
def test_a_resolved_request_is_frozen(resolve: Resolve) -> None:
    spec = resolve()
    with pytest.raises(AttributeError):
        spec.model_id = "other"  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        spec.anything = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        RequestSpec(extra={})  # type: ignore[call-arg]
