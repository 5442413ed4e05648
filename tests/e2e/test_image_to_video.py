"""One command each for text to video and image to video."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fastvideo.artifacts.events import ArtifactCreated
from fastvideo.artifacts.types import Producer
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import UnitKind
from tests.e2e.media_files import read_video
from tests.e2e.stack import Stack

Pixels = NDArray[np.uint8]


def distance(left: Pixels, right: Pixels) -> float:
    """Mean absolute difference, of 255."""
    return float(np.abs(left.astype(float) - right.astype(float)).mean())


# Phase 1 also asks for units in the trace (test_trace), structured cache keys (unit/cache) and
# cancellation at a boundary (test_cancel); here are its two commands.
@pytest.mark.row("PHX-02")
def test_one_command_makes_a_video_of_a_text_and_one_of_a_text_and_an_image(
    stack: Stack, tmp_path: Path
) -> None:
    images = []
    for name, prompt in (("three", "a red three moving left"), ("nine", "a blue nine moving up")):
        video = tmp_path / f"{name}.mp4"
        outcome = stack.run("generate", prompt, "-o", str(video), "--seed", "2")
        assert outcome.code == 0, outcome.err
        path = tmp_path / f"{name}.png"
        # As a user would: the last frame of a video is where the next one starts.
        Image.fromarray(read_video(video).frames[-1]).save(path)
        images.append(path)

    for path, other in (images, images[::-1]):
        video = path.with_suffix(".moved.mp4")
        arguments = ("--image", str(path), "-o", str(video), "--seed", "5")
        outcome = stack.run("generate", "a red three moving right", *arguments)
        assert outcome.code == 0, outcome.err
        assert f"wrote {video}" in outcome.out
        decoded = read_video(video)
        assert (decoded.size, len(decoded.frames)) == ((48, 48), 9)
        near = distance(decoded.frames[0], np.array(Image.open(path)))
        far = distance(decoded.frames[0], np.array(Image.open(other)))
        assert near < 12
        assert far > 2.5 * near
        assert distance(decoded.frames[-1], decoded.frames[0]) > 1  # Not a still.


async def test_the_units_of_an_image_are_in_the_log_and_the_video_names_it(
    stack: Stack, tmp_path: Path
) -> None:
    path = tmp_path / "first.png"
    Image.fromarray(np.full((60, 90, 3), (200, 30, 30), np.uint8)).save(path)
    arguments = ("--image", str(path), "--steps", "2", "--seed", "1")
    record = stack.generate("a red three moving right", *arguments)
    again = stack.generate("a red three moving right", *arguments)
    assert again["latents_digest"] == record["latents_digest"]
    assert [artifact["kind"] for artifact in record["artifacts"]] == ["video"]

    units = [
        (result.loop.node_id, event.payload.kind)
        for event in await stack.log("scheduler-")
        if isinstance(event.payload, BatchExecuted)
        for result in event.payload.results
        if result.loop.request_id == record["id"]
    ]
    assert units.count(("encode_image", UnitKind.VAE_TILE)) == 1
    assert units.count(("denoise", UnitKind.DIFFUSION_STEP)) == 2
    [video] = [
        event.payload.record
        for event in await stack.log(f"request-{record['id']}")
        if isinstance(event.payload, ArtifactCreated)
    ]
    [image_id] = video.parents
    [image] = [
        event.payload.record
        for event in await stack.log(f"artifact-{image_id}")
        if isinstance(event.payload, ArtifactCreated)
    ]
    assert (image.name, image.producer) == ("first.png", Producer())


def test_what_is_no_image_is_refused_by_name(stack: Stack, tmp_path: Path) -> None:
    text, empty, cut = (tmp_path / name for name in ("text.png", "empty.png", "cut.png"))
    text.write_text("not an image\n" * 50)
    empty.touch()
    for path in (text, empty, tmp_path / "none.png", tmp_path):
        outcome = stack.run("generate", "a red three", "--image", str(path))
        assert outcome.code == 1
        assert outcome.err.startswith("error: --image is ")
    whole = tmp_path / "whole.png"
    Image.effect_noise((64, 64), 80).save(whole)
    cut.write_bytes(whole.read_bytes()[:1000])
    outcome = stack.run("generate", "a red three", "--image", str(cut), "--json")
    assert outcome.code == 1
    assert "INVALID_IMAGE" in outcome.err
    outcome = stack.run("generate", "a red three", "--image", str(whole), "--size", "50x48")
    assert outcome.code == 1
    assert "width" in outcome.err
