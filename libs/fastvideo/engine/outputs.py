"""The files that a request's outputs become: which are wanted, and their bytes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from fastvideo.artifacts.types import ArtifactKind, MediaInfo
from fastvideo.engine import behavior
from fastvideo.errors import ContractViolation, InvalidField
from fastvideo.loops.behavior import TRAJECTORY, Captured
from fastvideo.media.images import encode_png
from fastvideo.media.sheet import contact_sheet
from fastvideo.media.tensors import encode_tensors
from fastvideo.media.video import Frames, encode_mp4
from fastvideo.requests.types import OutputSpec, RequestSpec

VIDEO: Final = "video"
PREVIEW: Final = "preview"
PREVIEW_STRIDE: Final = 4

Encode = Callable[[Any, RequestSpec], tuple[bytes, MediaInfo | None]]


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One kind of file: what it is called, and the value that it is made of."""

    output: str
    value: str
    kind: ArtifactKind
    name: str
    content_type: str
    encode: Encode
    # How often what it is made of is in memory while it is encoded.
    copies: int = 1


def wanted_files(outputs: OutputSpec, values: Mapping[str, Any]) -> tuple[OutputFile, ...]:
    """The files that a node must write from the values that it was given.

    Latents are written when they are asked for or when they are all there is; features, scores
    and a captured trajectory always are, since only programs that hand them out bind them. Raises
    InvalidField for an output whose value is absent, and when nothing is left to write.
    """
    wanted = []
    made_of = set(values) - set(behavior.VALUES)
    for file in _FILES:
        asked = bool(getattr(outputs, file.output, False))
        implied = file.output in ("features", "scores", TRAJECTORY) or (
            file.output == "latents" and made_of == {"latents"}
        )
        if asked and file.value not in values:
            raise InvalidField(
                f"outputs.{file.output}", True, f"what can be made of {sorted(values)}"
            )
        if asked or (implied and file.value in values):
            wanted.append(file)
    if not wanted:
        raise InvalidField("outputs", outputs, f"one that can be made of {sorted(values)}")
    return tuple(wanted)


def file_of(output: str) -> OutputFile:
    """The kind of file of an output's name."""
    for file in _FILES:
        if file.output == output:
            return file
    raise ContractViolation(f"no file is made of output {output!r}", subject=output)


def _video(value: Any, request: RequestSpec) -> tuple[bytes, MediaInfo | None]:
    return _mp4(_frames(value), request.sampling.fps)


def _preview(value: Any, request: RequestSpec) -> tuple[bytes, MediaInfo | None]:
    """Every fourth frame at a quarter of the rate: about as long as the video."""
    frames = _frames(value)[::PREVIEW_STRIDE]
    return _mp4(frames, max(1, round(request.sampling.fps / PREVIEW_STRIDE)))


def _mp4(frames: Frames, fps: int) -> tuple[bytes, MediaInfo]:
    count, height, width, _ = frames.shape
    media = MediaInfo(
        container="mp4", codec="h264", width=width, height=height, fps=float(fps), frames=count
    )
    return encode_mp4(frames, fps), media


def _sheet(value: Any, request: RequestSpec) -> tuple[bytes, MediaInfo | None]:
    return contact_sheet(_frames(value)), None


def _image(value: Any, request: RequestSpec) -> tuple[bytes, MediaInfo | None]:
    return encode_png(_frames(value)[0]), None


def _latents(value: Any, request: RequestSpec) -> tuple[bytes, MediaInfo | None]:
    sampling = request.sampling
    about = {
        "model_id": request.model_id,
        "seed": str(sampling.seed),
        "steps": str(sampling.steps),
        "guidance_scale": repr(sampling.guidance_scale),
    }
    return encode_tensors({"latents": value.to(torch.float32)}, about), None


def _features(value: Any, request: RequestSpec) -> tuple[bytes, MediaInfo | None]:
    return encode_tensors({"text_features": value}, {"model_id": request.model_id}), None


def _scores(value: Any, request: RequestSpec) -> tuple[bytes, MediaInfo | None]:
    if isinstance(value, Mapping):
        plain: Any = {name: float(figure) for name, figure in value.items()}
    else:
        plain = {"scores": value.tolist()}
    return json.dumps(plain, sort_keys=True).encode(), None


def _trajectory(value: Any, request: RequestSpec) -> tuple[bytes, MediaInfo | None]:
    return behavior.trajectory_file(Captured.of(value)), None


def _frames(value: Any) -> Frames:
    array: Frames = value.numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    return array


_TENSORS: Final = "application/octet-stream"
# In the order in which they are written: a preview is there before the video is encoded.
_FILES: Final = (
    OutputFile(PREVIEW, "frames", ArtifactKind.VIDEO, "preview.mp4", "video/mp4", _preview),
    OutputFile(VIDEO, "frames", ArtifactKind.VIDEO, "video.mp4", "video/mp4", _video),
    OutputFile("image", "frames", ArtifactKind.IMAGE, "image.png", "image/png", _image),
    OutputFile("sheet", "frames", ArtifactKind.IMAGE, "sheet.png", "image/png", _sheet),
    OutputFile(
        "latents", "latents", ArtifactKind.LATENT, "latents.safetensors", _TENSORS, _latents
    ),
    OutputFile(
        "features",
        "text_features",
        ArtifactKind.LATENT,
        "features.safetensors",
        _TENSORS,
        _features,
    ),
    OutputFile("scores", "scores", ArtifactKind.SCORE, "scores.json", "application/json", _scores),
    # The last one: its record names the others.
    OutputFile(
        TRAJECTORY,
        TRAJECTORY,
        ArtifactKind.LATENT,
        "trajectory.safetensors",
        _TENSORS,
        _trajectory,
        copies=2,
    ),
)
