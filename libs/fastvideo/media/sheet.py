"""Contact sheets: all frames of a video in one PNG, large enough for a person to see."""

import io
import math
from typing import Final

import numpy as np
from PIL import Image

from fastvideo.media.video import Frames, check_frames

# The longer side of a frame on the sheet is at least this, in pixels.
_SIDE_PIXELS_MIN: Final = 144
# A sheet never grows past this on a side; frames are thinned out instead.
_SHEET_PIXELS_MAX: Final = 8192
_GAP_PIXELS: Final = 4
_BACKGROUND: Final = (24, 24, 24)


def contact_sheet(frames: Frames) -> bytes:
    """The frames, uint8 [T, H, W, 3], left to right and top to bottom, as PNG bytes.

    Small frames are enlarged by a whole factor with their pixels kept square and sharp.
    Raises InvalidField for frames of another form.
    """
    check_frames(frames)
    height, width = frames.shape[1:3]
    factor = math.ceil(_SIDE_PIXELS_MIN / max(height, width))
    cell_width, cell_height = width * factor + _GAP_PIXELS, height * factor + _GAP_PIXELS
    shown = _thin_out(frames, cell_width, cell_height)
    columns = math.ceil(math.sqrt(len(shown)))
    rows = math.ceil(len(shown) / columns)
    sheet = Image.new(
        "RGB", (columns * cell_width + _GAP_PIXELS, rows * cell_height + _GAP_PIXELS), _BACKGROUND
    )
    for index, pixels in enumerate(shown):
        image = Image.fromarray(np.ascontiguousarray(pixels))
        row, column = divmod(index, columns)
        sheet.paste(
            image.resize((width * factor, height * factor), Image.Resampling.NEAREST),
            (_GAP_PIXELS + column * cell_width, _GAP_PIXELS + row * cell_height),
        )
    buffer = io.BytesIO()
    # Half the time of the usual level, a tenth more bytes.
    sheet.save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def _thin_out(frames: Frames, cell_width: int, cell_height: int) -> Frames:
    """Evenly chosen frames, as many as a sheet of the largest size holds."""
    side = min(_SHEET_PIXELS_MAX // cell_width, _SHEET_PIXELS_MAX // cell_height)
    room = max(1, side) ** 2
    if len(frames) <= room:
        return frames
    chosen: Frames = frames[np.linspace(0, len(frames) - 1, room).round().astype(int)]
    return chosen
