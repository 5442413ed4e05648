"""Images: those of users, decoded within bounds and fitted undistorted, and frames as PNG."""

import io
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from fastvideo.errors import InvalidField

Pixels = NDArray[np.uint8]
"""An RGB image, uint8 [Y, X, 3]."""

FORMATS: Final = ("PNG", "JPEG", "WEBP")
"""What is decoded, as Pillow names it."""

PIXELS_MAX: Final = 4096 * 4096
"""No image of more pixels is decoded."""


def decode_image(data: bytes, field: str) -> Pixels:
    """The pixels of an image file, upright, in RGB; transparency is dropped.

    Of several frames the first. It reads an image as `diffusers.utils.load_image` does.
    Raises InvalidField with the reason INVALID_IMAGE, naming `field`.
    """
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            if width * height > PIXELS_MAX:
                raise _invalid(field, f"{width}x{height} pixels", f"at most {PIXELS_MAX} pixels")
            return np.array(ImageOps.exif_transpose(image).convert("RGB"))
    except UnidentifiedImageError as error:
        raise _invalid(field, data[:16], f"a {', '.join(FORMATS)} image") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _invalid(field, str(error), f"at most {PIXELS_MAX} pixels") from error
    # Pillow's decoders raise these, and struct.error's kin SyntaxError, for what is damaged.
    except (OSError, ValueError, SyntaxError, IndexError) as error:
        raise _invalid(field, str(error), "an image that is whole") from error


def encode_png(pixels: Pixels) -> bytes:
    """An image as PNG bytes, every pixel as it is."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, format="PNG", compress_level=6)
    return buffer.getvalue()


def fit_image(pixels: Pixels, width: int, height: int) -> Pixels:
    """The middle of an image, cut to the shape of width x height and scaled to it.

    Nothing is stretched: what does not fit the shape falls away on both sides alike. Scaled with
    Lanczos, as `diffusers.VideoProcessor.preprocess` scales an image.
    """
    image = Image.fromarray(pixels)
    image = image.crop(crop_box(image.size, width, height))
    return np.array(image.resize((width, height), Image.Resampling.LANCZOS))


def crop_box(size: tuple[int, int], width: int, height: int) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the largest middle part with the shape width x height.

    `size` is the image's width and height; at least one pixel a side is kept.
    """
    across, down = size
    kept_across = min(across, max(1, round(down * width / height)))
    kept_down = min(down, max(1, round(across * height / width)))
    left, top = (across - kept_across) // 2, (down - kept_down) // 2
    return left, top, left + kept_across, top + kept_down


def _invalid(field: str, value: object, allowed: str) -> InvalidField:
    return InvalidField(field, value, allowed, reason="INVALID_IMAGE")
