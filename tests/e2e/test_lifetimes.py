"""Videos that are deleted, and videos whose time has passed, through OpenAI's package and ours."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fastvideo import Client
from fastvideo.errors import Gone, NotFound
from tests.e2e import patient_http as httpx
from tests.e2e.stack import Stack, poll

openai = pytest.importorskip("openai")

pytestmark = [
    pytest.mark.filterwarnings("ignore:The Sora API is scheduled:DeprecationWarning"),
]
MODEL = "moving-digits"
FEW_STEPS = {"num_inference_steps": 3, "seed": 5}


@pytest.fixture
def client(stack: Stack) -> Iterator[Any]:
    url = f"http://{stack.address('gateway-http')}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def made(client: Any, **extra: Any) -> Any:
    """A completed video."""
    return client.videos.create_and_poll(
        prompt="a red three", model=MODEL, poll_interval_ms=100, extra_body=FEW_STEPS | extra
    )


def test_the_package_deletes_a_video_and_one_that_is_being_made(stack: Stack, client: Any) -> None:
    video = made(client)
    many = {"num_inference_steps": 900}
    running = client.videos.create(prompt="a blue two", model=MODEL, extra_body=many)
    for one in (video, running, video):
        answer = client.videos.delete(one.id)
        assert (answer.id, answer.object, answer.deleted) == (one.id, "video.deleted", True)
    for one in (video, running):
        with pytest.raises(openai.NotFoundError):
            client.videos.retrieve(one.id)
        with pytest.raises(openai.NotFoundError):
            client.videos.download_content(one.id)
    assert not {video.id, running.id} & {one.id for one in client.videos.list(limit=50)}
    with Client(stack.gateway) as ours, pytest.raises(NotFound):
        ours.get(video.id)


def test_a_video_whose_time_has_passed_says_so_and_its_file_is_gone(
    stack: Stack, client: Any
) -> None:
    kept = made(client, expires_after={"anchor": "completed_at", "seconds": 3600})
    assert kept.expires_at == kept.completed_at + 3600
    assert made(client).expires_at is None
    video = client.videos.create(
        prompt="a red three", model=MODEL, extra_body=FEW_STEPS | {"expires_after": {"seconds": 1}}
    )

    def expired() -> Any:
        found = client.videos.retrieve(video.id)
        return found if found.status == "expired" else None

    found = poll("the expiry", expired)
    assert found.error.code == "media_expired"
    assert found.expires_at == found.completed_at + 1
    with pytest.raises(openai.APIStatusError) as caught:
        client.videos.download_content(video.id)
    assert (caught.value.status_code, caught.value.code) == (410, "media_expired")
    with Client(stack.gateway) as ours:
        state = ours.get(video.id)
        assert state.expired_at == state.expires_at
        record = state.artifacts[0]
        with pytest.raises(Gone) as gone:
            ours.read_artifact(record.artifact_id)
        assert gone.value.reason == "MEDIA_EXPIRED"
        content = f"http://{stack.address('gateway-http')}/api/artifacts/{record.artifact_id}"
    for headers in ({}, {"If-None-Match": f'"{record.digest}"'}, {"Range": "bytes=0-1"}):
        assert httpx.get(f"{content}/content", headers=headers).status_code == 410


def test_a_lifetime_that_cannot_be_is_refused_by_name(client: Any) -> None:
    for wrong, where in (
        ({"seconds": 0}, "expires_after.seconds"),
        ({"anchor": "created_at", "seconds": 60}, "expires_after.anchor"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            client.videos.create(prompt="x", model=MODEL, extra_body={"expires_after": wrong})
        assert caught.value.param == where


@pytest.mark.slow
def test_the_history_of_what_is_gone_stays_and_can_be_run_again(stack: Stack, client: Any) -> None:
    expiring = made(client, expires_after={"seconds": 1})
    deleted = made(client)
    client.videos.delete(deleted.id)
    with Client(stack.gateway) as ours:

        def swept() -> Any:
            return ours.get(expiring.id).artifacts[0].deleted_at

        poll("the sweep", swept, timeout_s=90.0)
        record = ours.get(expiring.id).artifacts[0]
    content = f"http://{stack.address('gateway-http')}/api/artifacts/{record.artifact_id}/content"
    for headers in ({}, {"If-None-Match": f'"{record.digest}"'}, {"Range": "bytes=0-1"}):
        assert httpx.get(content, headers=headers).status_code == 410
    told = stack.run("log", "show", "--stream", f"request-{deleted.id}", "--json")
    names = [json.loads(line)["name"] for line in told.out.splitlines()]
    assert "request.deleted" in names
    assert "completed, expired" in stack.run("request", "get", expiring.id).out
    assert "completed after" in stack.run("explain", expiring.id).out
    assert stack.run("replay", "state", deleted.id, "--json").json["equal"]
    assert stack.run("replay", "execution", expiring.id, "--json").json["equal"]


@pytest.mark.slow
def test_the_command_line_deletes(stack: Stack, client: Any) -> None:
    videos = [made(client), made(client)]
    done = stack.run("request", "delete", *(video.id for video in videos))
    assert done.code == 0, done.err
    assert done.out.splitlines() == [f"{video.id}  deleted" for video in videos]
    again = stack.run("request", "delete", "req_nobody")
    assert (again.code, "does not exist" in again.err) == (1, True)
