"""What users of such servers give, over HTTP: refused by name, or used exactly as given."""

import base64
import io
import json
from typing import Any

import pytest
from PIL import Image

from fastvideo.artifacts.input_files import UPLOAD_BYTES_MAX
from tests.fuzz.places import Place
from tests.plugins.http import Answer, call

PROMPT = "a red three"


async def create(place: Place, path: str = "/v1/videos", **fields: Any) -> Answer:
    return await call(
        place.world.gateway.http_address,
        path,
        method="POST",
        headers={"Content-Type": "application/json"},
        body=json.dumps(fields).encode(),
    )


async def create_with(place: Place, image: bytes, name: str = "first.png") -> Answer:
    """By form, with an image."""
    parts = (
        b'--b\r\nContent-Disposition: form-data; name="prompt"\r\n\r\n' + PROMPT.encode() + b"\r\n"
        b'--b\r\nContent-Disposition: form-data; name="input_reference"; filename="'
        + name.encode()
        + b'"\r\nContent-Type: image/png\r\n\r\n'
        + image
        + b"\r\n--b--\r\n"
    )
    return await call(
        place.world.gateway.http_address,
        "/v1/videos",
        method="POST",
        headers={"Content-Type": "multipart/form-data; boundary=b"},
        body=parts,
    )


BAD: tuple[tuple[dict[str, Any], int, str], ...] = (
    ({"prompt": PROMPT, "model": "sora"}, 404, "model"),
    ({"prompt": PROMPT, "model": "moving-digits/nothing"}, 404, "model"),
    ({"prompt": PROMPT, "model": 7}, 400, "model"),
    ({}, 400, "prompt"),
    ({"prompt": ""}, 400, "prompt"),
    ({"prompt": None}, 400, "prompt"),
    ({"prompt": 3}, 400, "prompt"),
    ({"prompt": ["a"]}, 400, "prompt"),
    ({"prompt": "a\0b"}, 400, "prompt"),
    ({"prompt": "a" * 100_000}, 400, "prompt"),
    ({"prompt": "red " * 40}, 400, "prompt"),
    ({"prompt": "word " * 100_000}, 400, "prompt"),
    ({"prompt": PROMPT, "size": "0x0"}, 400, "size"),
    ({"prompt": PROMPT, "size": "63x64"}, 400, "size"),
    ({"prompt": PROMPT, "size": "480x700"}, 400, "size"),
    ({"prompt": PROMPT, "size": "832x480", "num_frames": 9}, 400, "size"),
    ({"prompt": PROMPT, "size": "512"}, 400, "size"),
    ({"prompt": PROMPT, "size": "-48x48"}, 400, "size"),
    ({"prompt": PROMPT, "size": 48}, 400, "size"),
    ({"prompt": PROMPT, "num_frames": 8}, 400, "num_frames"),
    ({"prompt": PROMPT, "num_frames": 0}, 400, "num_frames"),
    ({"prompt": PROMPT, "num_frames": 2**31}, 400, "num_frames"),
    ({"prompt": PROMPT, "seconds": "x"}, 400, "seconds"),
    ({"prompt": PROMPT, "seconds": 1e400}, 400, "seconds"),
    ({"prompt": PROMPT, "seconds": -1}, 400, "seconds"),
    # Frames beyond any integer were a defect.
    ({"prompt": PROMPT, "seconds": "60049310053"}, 400, "seconds"),
    ({"prompt": PROMPT, "seconds": 1e308}, 400, "seconds"),
    ({"prompt": PROMPT, "seconds": 3, "fps": 0}, 400, "fps"),
    ({"prompt": PROMPT, "seconds": 1, "num_frames": 9}, 400, "seconds"),
    ({"prompt": PROMPT, "fps": 0}, 400, "fps"),
    ({"prompt": PROMPT, "num_inference_steps": 0}, 400, "num_inference_steps"),
    ({"prompt": PROMPT, "num_inference_steps": 1.5}, 400, "num_inference_steps"),
    ({"prompt": PROMPT, "guidance_scale": -1}, 400, "guidance_scale"),
    ({"prompt": PROMPT, "guidance_scale": float("nan")}, 400, "guidance_scale"),
    ({"prompt": PROMPT, "flow_shift": float("inf")}, 400, "flow_shift"),
    ({"prompt": PROMPT, "seed": -1}, 400, "seed"),
    ({"prompt": PROMPT, "seed": 2**64}, 400, "seed"),
    ({"prompt": PROMPT, "colour": "red"}, 400, "colour"),
    ({"prompt": PROMPT, "input_reference": "art_1"}, 400, "input_reference"),
    ({"prompt": PROMPT, "input_reference": {"file_id": "art_none"}}, 404, "input_reference"),
)
BAD_IMAGES: tuple[tuple[dict[str, Any], int, str], ...] = (
    ({}, 400, "prompt"),
    ({"prompt": PROMPT, "n": 0}, 400, "n"),
    ({"prompt": PROMPT, "n": 11}, 400, "n"),
    ({"prompt": PROMPT, "n": True}, 400, "n"),
    ({"prompt": PROMPT, "response_format": "file"}, 400, "response_format"),
    ({"prompt": PROMPT, "size": "480x700"}, 400, "size"),
    ({"prompt": PROMPT, "model": "dall-e"}, 404, "model"),
)


@pytest.mark.row("API-17")
async def test_bad_input_over_http_is_refused_by_name_and_stores_nothing(place: Place) -> None:
    before = await place.world.size()
    for path, cases in (
        ("/v1/videos", BAD),
        ("/v1/videos/sync", BAD),
        ("/v1/images/generations", BAD_IMAGES),
    ):
        for fields, status, named in cases:
            answer = await create(place, path, **fields)
            shown = f"{path} {str(fields)[:100]}: {answer.body[:300]!r}"
            assert (answer.status, answer.error["param"]) == (status, named), shown
            assert answer.error["message"], shown
    assert await place.world.size() == before


async def test_whatever_is_given_is_used(place: Place) -> None:
    given: dict[str, Any] = {
        "prompt": PROMPT,
        "negative_prompt": "blue",
        "size": "64x32",
        "num_frames": 5,
        "fps": 4,
        "num_inference_steps": 3,
        "guidance_scale": 1.5,
        "flow_shift": 2.0,
        "seed": 9,
    }
    video = (await create(place, **given)).json
    assert {name: video[name] for name in given} == given
    assert video["seconds"] == "1.25"
    # Without a length it is the card's, whatever the rate.
    for fps in (4, 8, 16):
        video = (await create(place, prompt=PROMPT, fps=fps)).json
        assert (video["num_frames"], video["fps"], video["seconds"]) == (9, fps, f"{9 / fps:g}")
    # A length in seconds is made of frames that the model can make, as text or as a number.
    for seconds in ("1", 1, 1.0):
        assert (await create(place, prompt=PROMPT, seconds=seconds)).json["num_frames"] == 9


async def test_files_that_are_no_images_are_refused_by_name(place: Place) -> None:
    good = io.BytesIO()
    Image.new("RGB", (48, 48), (200, 30, 30)).save(good, format="PNG")
    before = await place.world.size()
    for data in (b"", b"a", b"GIF89a" + bytes(20), b"<svg xmlns='x'/>", b"%PDF-1.7", b"\x7fELF"):
        answer = await create_with(place, data)
        assert (answer.status, answer.error["param"]) == (400, "input_reference"), data
        url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        answer = await create(place, prompt=PROMPT, input_reference={"image_url": url})
        assert answer.status == 400, data
        assert answer.error["param"].startswith("input_reference"), data
    for url in ("http://127.0.0.1:1/a.png", "file:///etc/passwd", "data:image/png;base64,!!", ""):
        answer = await create(place, prompt=PROMPT, input_reference={"image_url": url})
        assert (answer.status, answer.error["param"]) == (400, "input_reference.image_url"), url
    large = await create_with(place, good.getvalue() + bytes(UPLOAD_BYTES_MAX))
    assert (large.status, large.error["code"]) == (413, "upload_too_large")
    assert await place.world.size() == before
    # The name of a file names nothing here.
    for name in ("../../etc/passwd", "a" * 300, "a\\b", "\u202egnp.exe"):
        assert (await create_with(place, good.getvalue(), name)).status == 202
