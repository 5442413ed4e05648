"""Images that users bring: what is decoded, what is refused by name, and how they are fitted."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from diffusers.video_processor import VideoProcessor
from PIL import Image

from fastvideo.errors import InvalidField
from fastvideo.media.images import PIXELS_MAX, Pixels, crop_box, decode_image, fit_image


def picture(width: int = 31, height: int = 20, channels: int = 3) -> Pixels:
    return np.random.default_rng(3).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(image: Image.Image, image_format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=image_format, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(("image_format", "options"), [("PNG", {}), ("WEBP", {"lossless": True})])
def test_a_lossless_file_gives_its_pixels(image_format: str, options: dict[str, Any]) -> None:
    pixels = picture()
    data = encoded(Image.fromarray(pixels), image_format, **options)
    assert (decode_image(data, "image") == pixels).all()


def test_a_jpeg_is_decoded_and_turned_upright() -> None:
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:, 16:] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # To be turned by a quarter, clockwise.
    data = encoded(Image.fromarray(pixels), "JPEG", exif=exif, quality=95)
    upright = decode_image(data, "image")
    assert upright.shape == (32, 16, 3)
    assert upright[:12].mean() < 10
    assert upright[20:].mean() > 245


@pytest.mark.parametrize("mode", ["RGBA", "L", "P", "1", "LA"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    decoded = decode_image(encoded(Image.fromarray(picture()).convert(mode), "PNG"), "image")
    assert decoded.shape == (20, 31, 3)
    assert decoded.dtype == np.uint8


def bomb(width: int, height: int) -> bytes:
    """A PNG that says how large it is and holds nothing."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\x00"))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "PNG, JPEG, WEBP"),
        (b"a text, not an image\n" * 20, "PNG, JPEG, WEBP"),
        (encoded(Image.fromarray(picture()), "BMP"), "PNG, JPEG, WEBP"),
        (encoded(Image.fromarray(picture()), "GIF"), "PNG, JPEG, WEBP"),
        (encoded(Image.fromarray(picture()), "PNG")[:200], "an image that is whole"),
        (encoded(Image.fromarray(picture(99, 99)), "JPEG")[:700], "an image that is whole"),
        (bomb(4097, 4096), f"at most {PIXELS_MAX} pixels"),
        (bomb(10_000, 10_000), f"at most {PIXELS_MAX} pixels"),
        (bomb(60_000, 60_000), f"at most {PIXELS_MAX} pixels"),
        (bomb(40, 40), "an image that is whole"),
    ],
    ids=["empty", "text", "bmp", "gif", "cut png", "cut jpeg", "large", "larger", "bomb", "hollow"],
)
def test_what_is_no_image_is_refused_and_the_field_is_named(data: bytes, message: str) -> None:
    with pytest.raises(InvalidField, match=message) as caught:
        decode_image(data, "inputs.image")
    assert caught.value.reason == "INVALID_IMAGE"
    assert caught.value.field == "inputs.image"


@pytest.mark.parametrize(
    ("size", "width", "height", "box"),
    [
        ((48, 48), 48, 48, (0, 0, 48, 48)),
        ((96, 96), 48, 48, (0, 0, 96, 96)),
        ((100, 48), 48, 48, (26, 0, 74, 48)),
        ((48, 101), 48, 48, (0, 26, 48, 74)),
        ((100, 100), 64, 32, (0, 25, 100, 75)),
        ((1, 500), 64, 32, (0, 249, 1, 250)),
        ((500, 1), 32, 64, (249, 0, 250, 1)),
    ],
)
def test_the_middle_of_the_asked_shape_is_kept(
    size: tuple[int, int], width: int, height: int, box: tuple[int, int, int, int]
) -> None:
    assert crop_box(size, width, height) == box


def test_nothing_is_stretched() -> None:
    wide = np.zeros((48, 144, 3), np.uint8)
    wide[:, 48:96] = 200
    assert (fit_image(wide, 48, 48) == 200).all()


@pytest.mark.parametrize("size", [(48, 48), (64, 32), (96, 96)])
def test_an_image_of_the_right_shape_is_scaled_as_upstream_scales_it(
    size: tuple[int, int],
) -> None:
    width, height = size
    pixels = picture(width * 2, height * 2)
    theirs = VideoProcessor(vae_scale_factor=8).preprocess(
        Image.fromarray(pixels), height=height, width=width
    )
    ours = fit_image(pixels, width, height)
    shown = ((theirs[0].permute(1, 2, 0) * 0.5 + 0.5) * 255).round().byte().numpy()
    assert (ours == shown).all()
