"""What the written files hold, read by other libraries than those that wrote them."""

from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from PIL import Image
from safetensors.numpy import load_file


@dataclass(frozen=True)
class Video:
    """A decoded video file."""

    codec: str
    pixel_format: str
    size: tuple[int, int]
    fps: float
    duration_s: float
    # [frames, height, width, 3], 0 to 255.
    frames: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]"


def read_video(path: Path) -> Video:
    """Decode every frame."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        assert stream.average_rate is not None
        assert stream.duration is not None
        assert stream.time_base is not None
        return Video(
            codec=stream.codec_context.name,
            pixel_format=str(stream.codec_context.pix_fmt),
            size=(stream.codec_context.width, stream.codec_context.height),
            fps=float(stream.average_rate),
            duration_s=float(stream.duration * stream.time_base),
            frames=np.stack(frames),
        )


def boxes(path: Path) -> list[str]:
    """Names of an MP4's outermost boxes, in order."""
    data = path.read_bytes()
    names, start = [], 0
    while start < len(data):
        size = int.from_bytes(data[start : start + 4])
        names.append(data[start + 4 : start + 8].decode("ascii"))
        start += size
    return names


def read_image(path: Path) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    """Pixels, [height, width, 3]."""
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


def latent_bytes(path: Path) -> bytes:
    """The bytes of the only tensor of a safetensors file, which is float32."""
    [tensor] = load_file(path).values()
    assert tensor.dtype == np.float32
    return np.ascontiguousarray(tensor).tobytes()
