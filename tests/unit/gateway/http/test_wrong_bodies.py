"""A body that is wrong is told where, and what would be right."""

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from fastvideo.errors import InvalidField, NotFound, meant_name
from fastvideo_gateway.http.openai.asked import Asked, VideoAsked
from fastvideo_gateway.http.openai.errors import openai_failed
from fastvideo_gateway.http.queries import validated, without_query


def refused(**fields: Any) -> InvalidField:
    with pytest.raises(InvalidField) as caught:
        validated({"prompt": "a red three", **fields}, VideoAsked)
    return caught.value


def test_a_name_that_is_not_known_is_answered_with_the_one_that_is_meant() -> None:
    with pytest.raises(InvalidField, match=r"promt is not known; did you mean prompt\?"):
        validated({"promt": "a red three"}, VideoAsked)
    error = refused(num_inference_step=4)
    assert (error.field, error.reason) == ("num_inference_step", "UNKNOWN_FIELD")
    assert "did you mean num_inference_steps?" in error.message


def test_a_name_that_is_long_is_not_compared() -> None:
    assert meant_name("step", ["steps", "seed"]) == "steps"
    # Megabytes of a name would take seconds.
    assert meant_name("step" * 50, ["step" * 50 + "s"]) == ""


def test_within_a_part_the_names_are_those_of_the_part() -> None:
    error = refused(expires_after={"second": 60})
    assert error.field == "expires_after.second"
    assert "did you mean seconds?" in error.message
    assert error.allowed == "anchor, seconds"


def test_what_is_missing_is_said_to_be() -> None:
    with pytest.raises(InvalidField, match="prompt is missing") as caught:
        validated({}, VideoAsked)
    assert (caught.value.field, caught.value.reason) == ("prompt", "FIELD_REQUIRED")


def test_what_is_allowed_is_said_without_the_validator_s_own_words() -> None:
    error = refused(expires_after={"anchor": "created_at", "seconds": 60})
    assert (error.field, error.allowed) == ("expires_after.anchor", "'completed_at'")


async def test_a_path_that_takes_no_parameters_passes_none_over() -> None:
    async def handle(_: Request) -> Response:
        return Response()

    def asked(query: bytes) -> Request:
        return Request({"type": "http", "query_string": query, "headers": []})

    assert (await without_query(handle)(asked(b""))).status_code == 200
    with pytest.raises(InvalidField, match="limit is not known; allowed: nothing"):
        await without_query(handle)(asked(b"limit=1"))


async def test_a_reference_to_no_image_is_refused() -> None:
    sent = iter([b'{"prompt": "x", "input_reference": {}}'])

    async def receive() -> Message:
        return {"type": "http.request", "body": next(sent)}

    headers = [(b"content-type", b"application/json")]
    with pytest.raises(InvalidField, match="allowed: image_url or file_id") as caught:
        await Asked.read(Request({"type": "http", "method": "POST", "headers": headers}, receive))
    assert caught.value.field == "input_reference"


@pytest.mark.parametrize(
    ("error", "param", "message"),
    [
        (
            InvalidField("sampling.width", 720, "16 to 256"),
            "size",
            "the width of size is 720; allowed: 16 to 256",
        ),
        (
            InvalidField("sampling.steps", 0, "1 to 1000"),
            "num_inference_steps",
            "num_inference_steps is 0; allowed: 1 to 1000",
        ),
        (
            InvalidField("inputs", "without image", "an image", reason="IMAGE_REQUIRED"),
            "input_reference",
            "input_reference is missing; what was asked for starts from an image",
        ),
        (
            InvalidField("inputs[1].image.role", "image", "prompt"),
            "input_reference",
            "input_reference is 'image'; allowed: prompt",
        ),
        (
            NotFound("request video_1 does not exist", subject="request_id"),
            "video_id",
            "video video_1 does not exist",
        ),
    ],
)
def test_an_error_has_the_words_of_openais_api(
    error: InvalidField | NotFound, param: str, message: str
) -> None:
    told = openai_failed(error).error
    assert (told.param, told.message) == (param, message)
