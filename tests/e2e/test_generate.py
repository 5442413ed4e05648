"""A prompt becomes files, from the command line."""

import hashlib
from pathlib import Path

import pytest

from tests.e2e.media_files import boxes, latent_bytes, read_image, read_video
from tests.e2e.stack import Stack

KEYS = {
    "id",
    "status",
    "seed",
    "steps",
    "guidance_scale",
    "size",
    "num_frames",
    "fps",
    "artifacts",
    "latents_digest",
    "seconds",
}
PROMPT = "a red three moving left"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.row("API-06", "API-10", "REQ-05")
def test_a_prompt_becomes_a_video_a_sheet_and_latents(stack: Stack, tmp_path: Path) -> None:
    video, sheet, latents = (tmp_path / name for name in ("out.mp4", "out.png", "out.safetensors"))
    record = stack.generate(
        PROMPT,
        *("-o", str(video), "--sheet", str(sheet), "--latents", str(latents), "--seed", "7"),
    )
    assert set(record) == KEYS
    assert record["status"] == "completed"
    assert (record["seed"], record["steps"], record["guidance_scale"]) == (7, 20, 3)
    assert (record["size"], record["num_frames"], record["fps"]) == ("48x48", 9, 8)
    assert record["seconds"] > 0
    by_kind = {artifact["kind"]: artifact for artifact in record["artifacts"]}
    files = {"video": video, "image": sheet, "latent": latents}
    assert set(by_kind) == set(files)
    for kind, path in files.items():
        assert by_kind[kind]["digest"] == sha256(path)
        assert by_kind[kind]["bytes"] == path.stat().st_size

    decoded = read_video(video)
    assert (decoded.codec, decoded.pixel_format) == ("h264", "yuv420p")
    assert (decoded.size, decoded.fps, len(decoded.frames)) == ((48, 48), 8.0, 9)
    assert decoded.duration_s == pytest.approx(9 / 8, abs=0.01)
    assert decoded.frames.std() > 5  # Not one flat colour,
    assert (decoded.frames[1:] != decoded.frames[:-1]).any()  # and not one still picture.
    order = boxes(video)
    assert order.index("moov") < order.index("mdat")

    pixels = read_image(sheet)
    assert pixels.std() > 5
    assert min(pixels.shape[:2]) >= 48
    assert hashlib.sha256(latent_bytes(latents)).hexdigest() == record["latents_digest"]


@pytest.mark.row("API-06")
def test_get_says_what_generate_said(stack: Stack) -> None:
    record = stack.generate(PROMPT, "--steps", "2", "--seed", "1")
    assert stack.run("request", "get", record["id"], "--json").json == record


@pytest.mark.row("REQ-04")
def test_the_same_seed_gives_the_same_bits_and_another_does_not(stack: Stack) -> None:
    def digests(seed: int) -> tuple[str, str]:
        record = stack.generate(PROMPT, "--steps", "4", "--seed", str(seed))
        [video] = record["artifacts"]
        return record["latents_digest"], video["digest"]

    first, again, other = digests(11), digests(11), digests(12)
    assert first == again
    assert first[0] != other[0]
    assert first[1] != other[1]


def test_without_a_seed_each_request_has_its_own_and_says_it(stack: Stack) -> None:
    first = stack.generate(PROMPT, "--steps", "2")
    second = stack.generate(PROMPT, "--steps", "2")
    assert first["seed"] != second["seed"]
    told = stack.generate(PROMPT, "--steps", "2", "--seed", str(first["seed"]))
    assert told["latents_digest"] == first["latents_digest"]


@pytest.mark.parametrize(
    ("size", "frames", "fps"), [("64x48", 5, 12), ("48x64", 9, 24), ("32x32", 1, 8)]
)
@pytest.mark.row("API-10")
def test_size_frames_and_rate_are_those_that_were_asked_for(
    stack: Stack, tmp_path: Path, size: str, frames: int, fps: int
) -> None:
    path = tmp_path / "out.mp4"
    asked = ("--size", size, "--frames", str(frames), "--fps", str(fps), "--steps", "2")
    record = stack.generate(PROMPT, "-o", str(path), *asked)
    assert (record["size"], record["num_frames"], record["fps"]) == (size, frames, fps)
    decoded = read_video(path)
    width, height = map(int, size.split("x"))
    assert (decoded.size, len(decoded.frames), decoded.fps) == ((width, height), frames, fps)


@pytest.mark.parametrize(
    "changed",
    [("--steps", "5"), ("--guidance", "1"), ("--negative", "blue"), ("--frames", "5")],
)
def test_every_option_that_is_given_changes_the_result(
    stack: Stack, changed: tuple[str, str]
) -> None:
    given = {"--steps": "4", "--guidance": "4", "--seed": "3"}

    def digest(options: dict[str, str]) -> str:
        arguments = [part for pair in options.items() for part in pair]
        found: str = stack.generate(PROMPT, *arguments)["latents_digest"]
        return found

    assert digest(given) != digest(given | dict([changed]))


def test_without_json_the_video_lies_where_it_says(stack: Stack, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "out.mp4"
    outcome = stack.run("generate", PROMPT, "-o", str(path), "--steps", "2")
    assert outcome.code == 0, outcome.err
    assert f"wrote {path}" in outcome.out
    assert len(read_video(path).frames) == 9
    assert "100%" in outcome.err  # Progress, in lines since this is no terminal.


def test_models_lists_what_can_be_asked_for(stack: Stack) -> None:
    models = {model["model_id"]: model for model in stack.run("models", "--json").json}
    assert models["moving-digits"]["ready"]
    assert not models["wan2.1-t2v-1.3b"]["ready"]
    assert models["wan2.1-t2v-1.3b"]["unavailable_reason"]
