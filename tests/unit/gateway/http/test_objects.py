"""Requests as the object `video`."""

from dataclasses import replace

import pytest

from fastvideo.events.types import EventPayload
from fastvideo_gateway.http.openai.objects import video_object
from tests.unit.requests.test_state import CANCELLED, COMPLETED, FAILED, at, state_of


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [
        (COMPLETED, "expired", "media_expired"),
        (FAILED, "failed", "boom"),
        (CANCELLED, "cancelled", None),
    ],
)
def test_of_what_has_passed_only_what_completed_is_expired(
    end: EventPayload, status: str, code: str | None
) -> None:
    video = video_object(replace(state_of(end), expired_at=at(9)))
    assert (video.status, video.error and video.error.code) == (status, code)
