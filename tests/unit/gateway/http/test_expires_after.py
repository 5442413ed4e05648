"""Lifetimes in the words of OpenAI's API, in JSON and in forms."""

import pytest
from starlette.datastructures import FormData

from fastvideo.errors import InvalidField
from fastvideo_gateway.http.openai.asked import Asked, ExpiresAfter, VideoAsked
from fastvideo_gateway.http.queries import validated


async def test_a_form_names_the_parts_as_openais_package_does() -> None:
    form = FormData(
        [
            ("prompt", "x"),
            ("expires_after[anchor]", "completed_at"),
            ("expires_after[seconds]", "60"),
        ]
    )
    asked = await Asked._of_form(form)
    assert asked.video.expires_after == ExpiresAfter(seconds=60)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"seconds": 0}, "expires_after.seconds"),
        ({"seconds": 2**31}, "expires_after.seconds"),
        ({"seconds": True}, "expires_after.seconds"),
        ({}, "expires_after.seconds"),
        ({"seconds": 1, "anchor": "created_at"}, "expires_after.anchor"),
        ({"seconds": 1, "minutes": 1}, "expires_after.minutes"),
        (60, "expires_after"),
    ],
)
def test_what_is_no_lifetime_is_refused_by_name(given: object, field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        validated({"prompt": "x", "expires_after": given}, VideoAsked)
    assert caught.value.field == field
