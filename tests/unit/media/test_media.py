"""Encoders: the files are what players expect, and the same frames give the same bytes."""

import io

import av
import numpy as np
import pytest
import torch
from PIL import Image

from fastvideo.errors import InvalidField
from fastvideo.media.sheet import contact_sheet
from fastvideo.media.tensors import decode_tensors, encode_tensors
from fastvideo.media.video import Frames, encode_mp4, probe_mp4


def _frames(count: int = 9, height: int = 48, width: int = 64) -> Frames:
    return np.random.default_rng(7).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def test_an_mp4_is_what_a_browser_plays() -> None:
    probe = probe_mp4(encode_mp4(_frames(), 8))
    assert (probe.codec, probe.pixel_format, probe.faststart) == ("h264", "yuv420p", True)


@pytest.mark.parametrize(("count", "fps"), [(1, 1), (9, 8), (17, 24)])
def test_an_mp4_has_the_size_rate_and_frames_that_went_in(count: int, fps: int) -> None:
    probe = probe_mp4(encode_mp4(_frames(count), fps))
    assert (probe.width, probe.height, probe.frames, probe.fps) == (64, 48, count, fps)
    assert probe.duration_s == pytest.approx(count / fps, abs=1e-3)


def test_colours_survive_the_encoding() -> None:
    frames = np.zeros((5, 32, 32, 3), np.uint8)
    frames[:, :, :16] = (200, 30, 30)
    frames[:, :, 16:] = (20, 60, 220)
    with av.open(io.BytesIO(encode_mp4(frames, 8)), "r") as container:
        image = next(container.decode(video=0)).to_ndarray(format="rgb24").astype(int)
    assert np.abs(image[16, 6] - (200, 30, 30)).max() <= 4
    assert np.abs(image[16, 26] - (20, 60, 220)).max() <= 4


def test_the_same_frames_give_the_same_bytes() -> None:
    assert encode_mp4(_frames(), 8) == encode_mp4(_frames(), 8)
    assert contact_sheet(_frames()) == contact_sheet(_frames())


@pytest.mark.parametrize(
    "frames",
    [
        np.zeros((0, 48, 48, 3), np.uint8),
        np.zeros((9, 48, 48, 4), np.uint8),
        np.zeros((9, 48, 48, 3), np.float32),
        np.zeros((9, 47, 48, 3), np.uint8),
    ],
)
def test_frames_of_another_form_are_refused(frames: Frames) -> None:
    with pytest.raises(InvalidField):
        encode_mp4(frames, 8)


def test_fps_below_one_and_bytes_that_are_no_video_are_refused() -> None:
    with pytest.raises(InvalidField, match="fps"):
        encode_mp4(_frames(), 0)
    with pytest.raises(InvalidField, match="video"):
        probe_mp4(b"not a video at all")


def test_a_sheet_shows_every_frame_enlarged_with_sharp_pixels() -> None:
    frames = _frames(9, 48, 48)
    sheet = np.asarray(Image.open(io.BytesIO(contact_sheet(frames))))
    assert sheet.shape == (3 * 148 + 4, 3 * 148 + 4, 3)
    # Frame 4 is in the middle; each of its pixels covers 3 by 3.
    cell = sheet[4 + 148 : 4 + 148 + 144, 4 + 148 : 4 + 148 + 144]
    assert (cell[::3, ::3] == frames[4]).all()
    assert (cell[2::3, 2::3] == frames[4]).all()


def test_a_sheet_of_very_many_frames_stays_bounded() -> None:
    frames = np.broadcast_to(np.uint8(9), (20, 2000, 3000, 3))
    width, height = Image.open(io.BytesIO(contact_sheet(frames))).size
    assert width <= 8192 + 8
    assert height <= 8192 + 8


def test_tensors_come_back_with_their_bits() -> None:
    latents = torch.randn(1, 8, 3, 6, 6)
    back = decode_tensors(encode_tensors({"latents": latents.transpose(3, 4)}, {"seed": "1"}))
    assert torch.equal(back["latents"], latents.transpose(3, 4))
    with pytest.raises(InvalidField, match="payload"):
        decode_tensors(b"junk")


def test_the_same_frames_give_the_same_bytes_whatever_the_memory_held() -> None:
    frames = _moving_blob()
    rng = np.random.default_rng(7)
    encoded = set()
    for _ in range(40):
        # What an encoder reads without having written it differs from now on.
        rubbish = [np.full(size, rng.integers(256), np.uint8) for size in rng.integers(1, 8000, 50)]
        del rubbish
        encoded.add(encode_mp4(frames, 8))
    assert len(encoded) == 1


def _moving_blob() -> Frames:
    y, x = np.mgrid[0:48, 0:48]
    blobs = [np.exp(-((x - 12 - 2 * t) ** 2 + (y - 24) ** 2) / 60) for t in range(9)]
    frames: Frames = (np.stack(blobs)[..., None] * np.array([255, 25, 12])).astype(np.uint8)
    return frames


def test_the_same_tensors_and_metadata_give_the_same_bytes() -> None:
    tensors = {name: torch.zeros(2) for name in "edcba"}
    about = {name: name for name in "zyxwv"}
    assert len({encode_tensors(tensors, about) for _ in range(20)}) == 1
