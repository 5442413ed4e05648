"""A submit as a message."""

import pytest

from fastvideo.client.submission import named_as_given, renamed, submit_message
from fastvideo.errors import InvalidField, NotFound
from fastvideo.requests.types import OutputSpec, SamplingOverrides


def message(prompt: str = "a red three", **sampling: object):  # type: ignore[no-untyped-def]
    return submit_message(
        prompt=prompt,
        negative_prompt=None,
        model_id="moving-digits",
        sampling=SamplingOverrides(**sampling),  # type: ignore[arg-type]
        outputs=OutputSpec(video=True),
        session_id="",
        priority=0,
        deadline=None,
        idempotency_key="k",
    )


def test_what_was_given_is_sent_and_what_was_left_out_is_absent() -> None:
    sent = message(steps=0, guidance_scale=0.0, seed=-1).sampling
    for given in ("steps", "guidance_scale", "seed"):
        assert sent.HasField(given)
    for absent in ("width", "height", "num_frames", "fps", "flow_shift"):
        assert not sent.HasField(absent)
    assert (sent.steps, sent.guidance_scale, sent.seed) == (0, 0.0, -1)


@pytest.mark.parametrize(
    ("field", "value"),
    [("seed", 2**63), ("width", 2**31), ("steps", 1.5), ("guidance_scale", "high")],
)
def test_a_number_that_does_not_fit_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidField) as caught:
        message(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field == f"sampling.{field}"


def test_text_that_is_not_unicode_is_refused_by_name() -> None:
    with pytest.raises(InvalidField) as caught:
        message("a red \udc80 three")
    assert caught.value.field == "prompt"


@pytest.mark.parametrize("negative_prompt", [None, "blue"])
def test_an_image_chooses_the_program_that_starts_from_it(negative_prompt: str | None) -> None:
    sent = submit_message(
        prompt="a red three",
        negative_prompt=negative_prompt,
        image_id="art_1",
        model_id="m",
        sampling=SamplingOverrides(),
        outputs=OutputSpec(video=True),
        session_id="",
        priority=0,
        deadline=None,
        idempotency_key="k",
    )
    assert sent.program_id == "image_to_video"
    assert sent.inputs[-1].image.role == "image"
    path = f"inputs[{len(sent.inputs) - 1}].image.artifact_id"
    with pytest.raises(InvalidField) as caught, named_as_given():
        raise InvalidField(path, "art_1", "an artifact of kind image")
    assert caught.value.field == "image"
    assert str(caught.value).startswith("image is 'art_1'")


def test_what_is_not_found_is_named_as_it_was_given_too() -> None:
    with pytest.raises(NotFound) as caught, renamed({"scope.target_id": "request_id"}):
        raise NotFound("request req_1 does not exist", subject="scope.target_id")
    assert caught.value.subject == "request_id"


def test_without_an_image_the_server_chooses_the_program() -> None:
    assert message().program_id == ""
