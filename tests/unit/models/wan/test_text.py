from dataclasses import replace

import pytest

from fastvideo.errors import InvalidField
from fastvideo.model.prompts import clean_prompt
from fastvideo.models.wan.text import request_texts
from fastvideo.requests.types import (
    ImagePart,
    OutputSpec,
    RequestKind,
    RequestSpec,
    SamplingParams,
    TextPart,
)


def request(
    *parts: TextPart, guidance: float = 3.0, kind: RequestKind = RequestKind.GENERATION
) -> RequestSpec:
    return RequestSpec(
        kind=kind,
        inputs=(*parts, ImagePart()),
        sampling=SamplingParams(guidance_scale=guidance),
        outputs=OutputSpec(),
    )


PROMPT = TextPart(role="prompt", text=" a  red\nthree ")
NEGATIVE = TextPart(role="negative_prompt", text="blue")


def test_prompts_are_cleaned() -> None:
    assert clean_prompt(" a\t red &amp;amp; blue\u00a0one ") == "a red & blue one"


def test_guidance_needs_a_negative_prompt_even_an_empty_one() -> None:
    assert request_texts(request(PROMPT)) == {"prompt": "a red three", "negative_prompt": ""}
    assert request_texts(request(PROMPT, NEGATIVE))["negative_prompt"] == "blue"


def test_without_guidance_only_the_prompt_is_encoded() -> None:
    assert request_texts(request(PROMPT, guidance=1.0)) == {"prompt": "a red three"}
    scoring = request(PROMPT, kind=RequestKind.SCORING)
    assert request_texts(scoring) == {"prompt": "a red three"}


def test_an_encoding_request_gets_what_it_gives() -> None:
    encoding = request(PROMPT, kind=RequestKind.ENCODING)
    assert set(request_texts(encoding)) == {"prompt"}
    both = replace(encoding, inputs=(PROMPT, NEGATIVE))
    assert set(request_texts(both)) == {"prompt", "negative_prompt"}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (request(), "prompt"),
        (request(TextPart(role="prompt", text=" \n ")), "prompt"),
        (request(PROMPT, PROMPT), "prompt"),
        (request(PROMPT, TextPart(role="style", text="x")), "inputs.role"),
        (request(PROMPT, NEGATIVE, guidance=1.0), "negative_prompt"),
        (request(PROMPT, NEGATIVE, kind=RequestKind.SCORING), "negative_prompt"),
    ],
)
def test_a_text_that_cannot_be_honoured_is_refused_by_name(spec: RequestSpec, field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        request_texts(spec)
    assert caught.value.field == field
