"""The doors of OpenAI's API, through its own Python package and through bare HTTP."""

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fastvideo import Client, Engine
from tests.e2e import patient_http as httpx
from tests.e2e.stack import Stack, poll

openai = pytest.importorskip("openai")

pytestmark = [
    pytest.mark.filterwarnings("ignore:The Sora API is scheduled:DeprecationWarning"),
]
MODEL = "moving-digits"


@pytest.fixture
def url(stack: Stack) -> str:
    return f"http://{stack.address('gateway-http')}"


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def png_size(data: bytes) -> tuple[int, int]:
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def test_the_package_creates_polls_downloads_and_lists(client: Any) -> None:
    extra = {"seed": 7, "num_inference_steps": 4, "guidance_scale": 2.0, "fps": 4}
    video = client.videos.create_and_poll(
        prompt="a red three", model=MODEL, size="48x32", poll_interval_ms=100, extra_body=extra
    )
    assert (video.status, video.progress, video.error) == ("completed", 100, None)
    assert (video.size, video.seconds, video.prompt) == ("48x32", "2.25", "a red three")
    assert video.completed_at >= video.created_at > time.time() - 120
    assert (video.seed, video.num_inference_steps, video.guidance_scale) == (7, 4, 2.0)

    data = client.videos.download_content(video.id).read()
    assert data[4:8] == b"ftyp"
    thumbnail = client.videos.download_content(video.id, variant="thumbnail").read()
    assert png_size(thumbnail) == (48, 32)
    assert client.videos.download_content(video.id, variant="spritesheet").read()[1:4] == b"PNG"

    first = client.videos.list(limit=1)
    assert first.data[0].id == video.id
    assert client.videos.retrieve(video.id) == first.data[0]


def test_a_video_begins_with_the_image_that_the_package_uploads(client: Any, url: str) -> None:
    plain = client.videos.create_and_poll(
        prompt="a red three", model=MODEL, poll_interval_ms=100, extra_body={"seed": 1}
    )
    image = client.videos.download_content(plain.id, variant="thumbnail").read()
    video = client.videos.create_and_poll(
        prompt="a red three",
        model=MODEL,
        input_reference=("first.png", image, "image/png"),
        poll_interval_ms=100,
        extra_body={"num_inference_steps": 3, "seed": 2},
    )
    assert video.status == "completed", video.error
    # The same image within the JSON gives the same video.
    body = {
        "prompt": "a red three",
        "input_reference": {
            "image_url": f"data:image/png;base64,{base64.b64encode(image).decode()}"
        },
        "num_inference_steps": 3,
        "seed": 2,
    }
    inline = httpx.post(
        f"{url}/v1/videos/sync", json=body, headers={"Accept": "application/json"}, timeout=60
    ).json()
    assert inline["latents_digest"] == video.latents_digest


def test_lists_go_on_behind_an_id_in_both_directions(client: Any) -> None:
    made = [
        client.videos.create(
            prompt=f"page {i}", model=MODEL, extra_body={"num_inference_steps": 1}
        ).id
        for i in range(5)
    ]
    newest = [video.id for video, _ in zip(client.videos.list(limit=2), range(5), strict=False)]
    assert newest == made[::-1]
    page = client.videos.list(limit=2, after=made[3])
    assert [video.id for video in page.data] == [made[2], made[1]]
    assert (page.first_id, page.last_id, page.has_more) == (made[2], made[1], True)
    rising = client.videos.list(limit=2, order="asc", after=made[1])
    assert [video.id for video in rising.data] == [made[2], made[3]]


@pytest.mark.row("API-07")
def test_images_are_distinct_and_as_asked(client: Any, url: str) -> None:
    def images(**extra: Any) -> list[bytes]:
        answer = client.images.generate(
            prompt="a red three",
            model=MODEL,
            n=3,
            size="48x32",
            response_format="b64_json",
            extra_body={"num_inference_steps": 3, "seed": 5, "guidance_scale": 2.0, **extra},
        )
        assert [image.seed for image in answer.data] == [5, 6, 7]
        return [base64.b64decode(image.b64_json) for image in answer.data]

    made = images()
    assert len(set(made)) == 3
    assert {png_size(data) for data in made} == {(48, 32)}
    assert images() == made
    # Each of what was asked counts.
    assert not set(images(num_inference_steps=4)) & set(made)
    assert not set(images(guidance_scale=5.0)) & set(made)
    by_url = client.images.generate(prompt="a red three", model=MODEL, size="48x48")
    assert png_size(httpx.get(by_url.data[0].url).content) == (48, 48)


def test_models_are_listed_with_what_they_can_do(client: Any) -> None:
    model, *programs = client.models.list().data
    assert (model.id, model.object, model.ready) == (MODEL, "model", True)
    assert f"{MODEL}/image_to_video" in {program.id for program in programs}
    assert "text_to_video" in model.capabilities
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


@pytest.mark.row("API-08")
def test_a_post_answers_202_with_a_job_that_completes(url: str) -> None:
    body = {"prompt": "a red three", "num_inference_steps": 3}
    made = httpx.post(f"{url}/v1/videos", json=body)
    assert made.status_code == 202
    video = made.json()
    assert video["object"] == "video"
    assert video["status"] in ("queued", "in_progress")

    def completed() -> Any:
        found = httpx.get(f"{url}/v1/videos/{video['id']}").json()
        return found if found["status"] == "completed" else None

    assert poll("a completed video", completed)["progress"] == 100
    whole = httpx.get(f"{url}/v1/videos/{video['id']}/content")
    part = httpx.get(f"{url}/v1/videos/{video['id']}/content", headers={"Range": "bytes=4-7"})
    assert (part.status_code, part.content) == (206, whole.content[4:8])
    beyond = httpx.get(
        f"{url}/v1/videos/{video['id']}/content", headers={"Range": "bytes=99999999-"}
    )
    assert (beyond.status_code, beyond.json()["error"]["param"]) == (416, "Range")


@pytest.mark.row("API-09")
def test_sync_waits_and_gives_the_video(url: str) -> None:
    body = {"prompt": "a red three", "num_inference_steps": 3, "seed": 3}
    made = httpx.post(f"{url}/v1/videos/sync", json=body, timeout=60)
    assert (made.status_code, made.headers["content-type"]) == (200, "video/mp4")
    assert made.content[4:8] == b"ftyp"
    told = httpx.post(
        f"{url}/v1/videos/sync", json=body, headers={"Accept": "application/json"}, timeout=60
    ).json()
    assert told["status"] == "completed"
    assert httpx.get(f"{url}/v1/videos/{told['id']}/content").content == made.content


def test_events_are_watched_and_resumed_after_a_cut(url: str) -> None:
    made = httpx.post(f"{url}/v1/videos", json={"prompt": "x", "num_inference_steps": 40}).json()

    def told(after: int, most: int) -> list[tuple[int, str, Any]]:
        events: list[tuple[int, str, Any]] = []
        headers = {"Last-Event-ID": str(after)} if after else {}
        address = f"{url}/v1/videos/{made['id']}/events"
        with httpx.stream("GET", address, headers=headers, timeout=60) as answer:
            number, name = 0, ""
            for line in answer.iter_lines():
                key, _, value = line.partition(": ")
                if key == "id":
                    number = int(value)
                elif key == "event":
                    name = value
                elif key == "data":
                    events.append((number, name, json.loads(value)))
                    if len(events) == most:
                        break
        return events

    first = told(0, 3)
    rest = told(first[-1][0], 10_000)
    numbers = [number for number, _, _ in (*first, *rest)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert first[0][1] == "request.accepted"
    assert rest[-1][1] == "request.completed"


@pytest.mark.row("API-19")
def test_a_running_video_is_cancelled_and_polls_as_cancelled(url: str) -> None:
    made = httpx.post(f"{url}/v1/videos", json={"prompt": "x", "num_inference_steps": 900}).json()
    answer = httpx.post(f"{url}/v1/videos/{made['id']}/cancel", timeout=30)
    assert answer.json()["status"] == "cancelled"
    assert httpx.get(f"{url}/v1/videos/{made['id']}").json()["status"] == "cancelled"
    refused = httpx.get(f"{url}/v1/videos/{made['id']}/content")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "video_not_completed")


@pytest.mark.row("API-27")
def test_engine_command_line_client_and_http_give_the_same_latents(stack: Stack, url: str) -> None:
    body = {"prompt": "a red three", "num_inference_steps": 5, "seed": 11, "guidance_scale": 2.5}
    by_http = httpx.post(
        f"{url}/v1/videos/sync", json=body, headers={"Accept": "application/json"}, timeout=60
    ).json()["latents_digest"]
    options = ("--steps", "5", "--seed", "11", "--guidance", "2.5")
    by_command = stack.generate("a red three", *options)["latents_digest"]
    with Client(stack.gateway) as grpc:
        by_grpc = grpc.generate("a red three", steps=5, seed=11, guidance_scale=2.5).latents_digest
    with Engine([MODEL], threads=1) as engine:
        handle = engine.submit("a red three", steps=5, seed=11, guidance_scale=2.5)
        in_process = handle.result(60).latents_digest
    assert by_http == by_command == by_grpc == in_process != ""


JSON = {"content-type": "application/json"}
WRONG: list[tuple[dict[str, Any], int, str | None]] = [
    ({"json": {}}, 400, "prompt"),
    ({"json": {"prompt": 5}}, 400, "prompt"),
    ({"json": []}, 400, "body"),
    ({"content": b"{", "headers": JSON}, 400, "body"),
    ({"content": b"\xff\xfe", "headers": JSON}, 400, "body"),
    ({"content": b"x", "headers": {"content-type": "text/plain"}}, 400, "Content-Type"),
    ({"json": {"prompt": "x", "model": "no-such-model"}}, 404, "model"),
    ({"json": {"prompt": "x", "bogus": 1}}, 400, "bogus"),
    ({"json": {"prompt": "x", "size": "47x48"}}, 400, "size"),
    ({"json": {"prompt": "x", "size": "wide"}}, 400, "size"),
    ({"json": {"prompt": "x", "seconds": -1}}, 400, "seconds"),
    ({"json": {"prompt": "x", "seconds": 1, "num_frames": 9}}, 400, "seconds"),
    ({"json": {"prompt": "x", "num_inference_steps": True}}, 400, "num_inference_steps"),
    ({"json": {"prompt": "x", "num_inference_steps": 10**12}}, 400, "num_inference_steps"),
    ({"json": {"prompt": "x", "guidance_scale": "much"}}, 400, "guidance_scale"),
    ({"json": {"prompt": "x" * 3000}}, 400, "prompt"),
    ({"content": b"x" * (25 << 20), "headers": JSON}, 413, "body"),
    ({"data": {"prompt": "x"}, "files": {"input_reference": b"nonsense"}}, 400, "input_reference"),
    ({"data": {"prompt": "x"}, "files": {"other": b"nonsense"}}, 400, "other"),
    (
        {"json": {"prompt": "x", "input_reference": {"image_url": "http://169.254.169.254/"}}},
        400,
        "input_reference.image_url",
    ),
]


@pytest.mark.parametrize(("given", "status", "param"), WRONG)
def test_bad_input_is_refused_by_parameter_and_stores_nothing(
    url: str, given: dict[str, Any], status: int, param: str | None
) -> None:
    def newest() -> Any:
        return httpx.get(f"{url}/v1/videos?limit=1").json()["first_id"]

    before = newest()
    answer = httpx.post(f"{url}/v1/videos", timeout=30, **given)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param), error
    assert error["message"]
    assert error["code"]
    assert newest() == before


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("PUT", "/v1/videos", 405),
        ("GET", "/v1/videos/req_nope", 404),
        ("POST", "/v1/videos/req_nope/cancel", 404),
        ("GET", "/v1/videos/req_nope/events", 404),
        ("GET", "/v1/videos?limit=0", 400),
        ("GET", "/v1/videos?limit=101", 400),
        ("GET", "/v1/videos?order=up", 400),
        ("GET", "/v1/videos?after=req_nope", 400),
        ("GET", "/v1/videos?limit=1&limit=2", 400),
    ],
)
def test_what_is_not_there_is_told_in_openais_words(
    url: str, method: str, path: str, status: int
) -> None:
    answer = httpx.request(method, f"{url}{path}")
    assert answer.status_code == status
    assert answer.json()["error"]["type"] in ("invalid_request_error", "not_found_error")


def test_a_repeat_with_its_key_answers_with_the_first(url: str) -> None:
    headers = {"Idempotency-Key": f"key-{time.time_ns()}"}
    body = {"prompt": "a red three", "num_inference_steps": 1}
    first, again = (
        httpx.post(f"{url}/v1/videos", json=body, headers=headers).json()["id"] for _ in range(2)
    )
    assert first == again
    images = {**body, "n": 2, "response_format": "b64_json"}
    made, repeated = (
        httpx.post(f"{url}/v1/images/generations", json=images, headers=headers, timeout=60).json()
        for _ in range(2)
    )
    assert made["data"] == repeated["data"]
    assert len({image["b64_json"] for image in made["data"]}) == 2


def test_of_images_whose_seeds_run_out_none_is_made(url: str) -> None:
    answer = httpx.post(
        f"{url}/v1/images/generations", json={"prompt": "x", "n": 2, "seed": 2**53 - 1}
    )
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "seed")


def test_images_are_no_videos_of_the_list(url: str) -> None:
    before = httpx.get(f"{url}/v1/videos?limit=1").json()["first_id"]
    body = {"prompt": "a red three", "num_inference_steps": 1}
    httpx.post(f"{url}/v1/images/generations", json=body, timeout=60)
    assert httpx.get(f"{url}/v1/videos?limit=1").json()["first_id"] == before


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://elsewhere.example"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "null"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_the_page_of_another_site_changes_nothing(url: str, headers: dict[str, str]) -> None:
    before = httpx.get(f"{url}/v1/videos?limit=1").json()["first_id"]
    answer = httpx.post(f"{url}/v1/videos", data={"prompt": "x"}, files={}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site")
    assert httpx.get(f"{url}/v1/videos?limit=1").json()["first_id"] == before
    own = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
    body = {"prompt": "x", "num_inference_steps": 1}
    assert httpx.post(f"{url}/v1/videos", json=body, headers=own).status_code == 202
