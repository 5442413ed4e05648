"""MP4 video: H.264 in yuv420p with the index first, so that a browser plays it as it loads."""

import io
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

import av
import numpy as np
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc
from numpy.typing import NDArray

from fastvideo.errors import InvalidField

Frames = NDArray[np.uint8]
"""RGB frames, uint8 [T, H, W, 3]."""

# Visually lossless on small canvases; the preset costs little at these sizes. Without mbtree,
# because x264's macroblock tree reads memory beyond small frames: the same frames then give
# other bytes from time to time (seen in 2 of 3 encodes at 48x48 in a busy process).
_ENCODER: Final = {"crf": "16", "preset": "veryfast", "x264-params": "mbtree=0"}
# No library versions or times in the container: the same frames give the same bytes.
_CONTAINER: Final = {"movflags": "+faststart", "fflags": "+bitexact"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoProbe:
    """What a decoder finds in a video file."""

    codec: str
    pixel_format: str
    # Pixels.
    width: int
    height: int
    fps: float
    frames: int
    duration_s: float
    # The index precedes the media, so that playback may start before the end has arrived.
    faststart: bool


def encode_mp4(frames: Frames, fps: int) -> bytes:
    """The frames, uint8 [T, H, W, 3], as an MP4 file at `fps` frames per second.

    Raises InvalidField for another form, odd sizes (yuv420p halves them) or fps below 1.
    """
    check_frames(frames)
    if fps < 1:
        raise InvalidField("fps", fps, "1 or more")
    height, width = frames.shape[1:3]
    if height % 2 or width % 2:
        raise InvalidField("size", f"{width}x{height}", "even width and height")
    # To move the index to the front, the muxer reads back what it wrote: that takes a file.
    with tempfile.TemporaryDirectory(prefix="fastvideo-") as folder:
        path = Path(folder) / "video.mp4"
        _write_mp4(path, frames, fps)
        return path.read_bytes()


def _write_mp4(path: Path, frames: Frames, fps: int) -> None:
    height, width = frames.shape[1:3]
    with av.open(path, "w", format="mp4", options=_CONTAINER) as container:
        stream = container.add_stream("libx264", rate=fps, options=_ENCODER)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.time_base = Fraction(1, fps)
        codec = stream.codec_context
        # One thread: the encoder's choices may depend on how frames are split among threads.
        codec.thread_count = 1
        codec.flags |= av.codec.context.Flags.bitexact
        codec.color_range = ColorRange.MPEG
        codec.color_primaries = ColorPrimaries.BT709
        codec.color_trc = ColorTrc.BT709
        codec.colorspace = Colorspace.ITU709
        for index, image in enumerate(frames):
            rgb = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            frame = rgb.reformat(
                format="yuv420p",
                dst_colorspace=Colorspace.ITU709,
                dst_color_range=ColorRange.MPEG,
            )
            frame.pts = index
            frame.time_base = Fraction(1, fps)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def probe_mp4(data: bytes) -> VideoProbe:
    """What is in a video file, its frames counted by decoding them.

    Raises InvalidField when the bytes hold no video.
    """
    try:
        with av.open(io.BytesIO(data), "r") as container:
            if not container.streams.video:
                raise InvalidField("video", data[:16], "a file with a video stream")
            stream = container.streams.video[0]
            count = sum(1 for _ in container.decode(stream))
            context = stream.codec_context
            base = stream.time_base or Fraction(0)
            return VideoProbe(
                codec=context.name,
                pixel_format=context.pix_fmt or "",
                width=context.width,
                height=context.height,
                fps=float(stream.average_rate or 0),
                frames=count,
                duration_s=float((stream.duration or 0) * base),
                faststart=0 <= data.find(b"moov") < data.find(b"mdat"),
            )
    except av.error.FFmpegError as error:
        raise InvalidField("video", data[:16], "the bytes of a video file") from error


def check_frames(frames: Frames) -> None:
    """Raise InvalidField unless these are RGB frames, uint8 [T, H, W, 3], one at least."""
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3 or not frames.size:
        shown = f"{frames.dtype} {list(frames.shape)}"
        raise InvalidField("frames", shown, "uint8 [T, H, W, 3] with at least one frame")
