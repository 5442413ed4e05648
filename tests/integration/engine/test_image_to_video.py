"""Image to video in process: the image is what the video starts from, in batches too."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastvideo.engine.engine import Engine
from fastvideo.engine.results import Video
from fastvideo.errors import InvalidField
from fastvideo.media.images import Pixels
from fastvideo.requests.types import RequestKind

PROMPT = "a red three moving right"
WAIT_S_MAX = 120.0


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def picture(engine: Engine) -> Pixels:
    """A frame that the model made: what its autoencoder knows."""
    video = engine.generate(PROMPT, steps=8, seed=2, timeout_s=WAIT_S_MAX)
    frame: Pixels = video.frames[0]
    return frame


def png(pixels: Pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def generate(engine: Engine, image: Any, **options: Any) -> Video:
    given = {"steps": 4, "seed": 7, "timeout_s": WAIT_S_MAX} | options
    return engine.generate(PROMPT, image=image, **given)


def distance(left: Pixels, right: Pixels) -> float:
    """Mean absolute difference, of 255."""
    return float(np.abs(left.astype(float) - right.astype(float)).mean())


def test_a_video_starts_from_its_image(engine: Engine, picture: Pixels, tmp_path: Path) -> None:
    path = tmp_path / "first.png"
    path.write_bytes(png(picture))
    video = generate(engine, path)
    assert video.request.program_id == "image_to_video"
    assert distance(video.frames[0], picture) < 6
    assert (video.frames[1:] != video.frames[:-1]).any()
    [artifact] = video.artifacts
    assert artifact.record.parents == (video.request.inputs[2].artifact_id,)  # type: ignore[union-attr]
    assert generate(engine, str(path)).latents_digest == video.latents_digest
    assert generate(engine, png(picture)).latents_digest == video.latents_digest
    assert generate(engine, png(picture[:, ::-1])).latents_digest != video.latents_digest


def test_the_middle_of_a_wider_image_is_taken_and_nothing_is_stretched(
    engine: Engine, picture: Pixels
) -> None:
    wide = np.full((48, 148, 3), 255, np.uint8)
    wide[:, 50:98] = picture
    assert (
        generate(engine, png(wide)).latents_digest == generate(engine, png(picture)).latents_digest
    )


def test_requests_from_images_share_forwards_with_the_bits_of_each_alone(
    engine: Engine, picture: Pixels
) -> None:
    images = [png(picture), png(picture[::-1]), png(picture[:, ::-1])]
    alone = [
        generate(engine, image, seed=seed, guidance_scale=1.0 + 2 * (seed % 2)).latents_digest
        for seed, image in enumerate(images)
    ]
    handles = [
        engine.submit(PROMPT, image=image, seed=seed, steps=4, guidance_scale=1.0 + 2 * (seed % 2))
        for seed, image in enumerate(images)
    ] + [engine.submit(PROMPT, seed=5, steps=4)]
    together = [handle.result(WAIT_S_MAX).latents_digest for handle in handles]
    assert together[:3] == alone
    assert together[3] == engine.generate(PROMPT, seed=5, steps=4).latents_digest


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (b"", "INVALID_IMAGE"),
        (b"a text", "INVALID_IMAGE"),
        (b"\x89PNG\r\n\x1a\nxx", "INVALID_IMAGE"),
    ],
)
def test_what_is_no_image_is_refused_at_once(engine: Engine, image: bytes, reason: str) -> None:
    with pytest.raises(InvalidField) as caught:
        engine.submit(PROMPT, image=image)
    assert (caught.value.field, caught.value.reason) == ("image", reason)


def test_a_request_that_takes_no_image_is_refused_by_name_and_keeps_none(
    engine: Engine, picture: Pixels
) -> None:
    for options, field in (
        ({"program": "text_to_video"}, "inputs[1].image.role"),
        ({"kind": RequestKind.ENCODING}, "program_id"),
        ({"size": (50, 48)}, "sampling.width"),
    ):
        with pytest.raises(InvalidField) as caught:
            engine.submit(PROMPT, image=png(picture), **options)
        assert caught.value.field == field
    with pytest.raises(FileNotFoundError):
        engine.submit(PROMPT, image="nowhere.png")
    assert not engine._artifacts._stored
