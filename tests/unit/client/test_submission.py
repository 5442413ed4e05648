"""A submit as a message."""

import pytest

from fastvideo.client.submission import submit_message
from fastvideo.errors import InvalidField
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
