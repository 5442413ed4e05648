"""How much a whole request keeps on a worker at most: its loops' states and its values."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from fastvideo.requests.types import RequestSpec

_MARGIN: Final = 1.1
_SHAPES_MAX: Final = 256
# The latents of a step are at most a twelfth of the frames, and a request keeps more than those;
# while a loop hands its trajectory on, both hold it.
_STEP_SHARE: Final = 1 / 6

Shape = tuple[int, int, int]
"""Width, height and frames."""


@dataclass(slots=True)
class _Program:
    """What was seen of the requests of one program of one model."""

    peaks: OrderedDict[Shape, int] = field(default_factory=OrderedDict)
    # A request that left fewer values ended early and tells nothing.
    values_most: int = 0


class ResidencyBook:
    """Resident peaks by program and shape; safe to use from any thread.

    What is kept grows with pixels and at most as fast, so one measured shape, such as that of
    the warm-up, bounds any other: a larger one by proportion, a smaller one as it is. One that
    captures its trajectory keeps the latents of every step beside that, and teaches nothing.
    """

    def __init__(self) -> None:
        self._programs: dict[tuple[str, str], _Program] = {}
        self._lock = threading.Lock()

    def note(
        self, model_instance_id: str, request: RequestSpec, peak_bytes: int, values: int
    ) -> None:
        """Take in what a request held at most, and how many values its loops left."""
        if request.outputs.capture is not None:
            return
        with self._lock:
            key = (model_instance_id, request.program_id)
            seen = self._programs.setdefault(key, _Program())
            if values < seen.values_most or not peak_bytes:
                return
            if values > seen.values_most:
                seen.peaks.clear()
                seen.values_most = values
            shape = _shape(request)
            seen.peaks[shape] = max(peak_bytes, seen.peaks.get(shape, 0))
            seen.peaks.move_to_end(shape)
            while len(seen.peaks) > _SHAPES_MAX:
                seen.peaks.popitem(last=False)

    def expected_bytes(self, model_instance_id: str, request: RequestSpec) -> int:
        """What a request will hold at most; 0 when nothing of its model was seen yet."""
        with self._lock:
            own = self._programs.get((model_instance_id, request.program_id))
            seen = [own] if own is not None and own.peaks else self._of(model_instance_id)
            # The tightest bound of its own program; of others', the widest, as they differ.
            bounds = [_bound(program, _shape(request)) for program in seen if program.peaks]
        captured = 0.0
        if request.outputs.capture is not None:
            captured = (request.sampling.steps + 1) * _STEP_SHARE
        return int(max(bounds, default=0) * (1.0 + captured) * _MARGIN)

    def typical_bytes(self) -> int:
        """What one request keeps, of the smallest size that was seen of each program.

        The most of all programs; 0 when none was seen yet.
        """
        with self._lock:
            smallest = [min(seen.peaks.values()) for seen in self._programs.values() if seen.peaks]
        return int(max(smallest, default=0) * _MARGIN)

    def forget(self, model_instance_id: str) -> None:
        """Drop what was seen of a model that is gone."""
        with self._lock:
            for key in [key for key in self._programs if key[0] == model_instance_id]:
                del self._programs[key]

    def _of(self, model_instance_id: str) -> list[_Program]:
        return [seen for key, seen in self._programs.items() if key[0] == model_instance_id]


def _bound(program: _Program, shape: Shape) -> float:
    if shape in program.peaks:
        return program.peaks[shape]
    volume = _volume(shape)
    return min(peak * max(1.0, volume / _volume(known)) for known, peak in program.peaks.items())


def _shape(request: RequestSpec) -> Shape:
    sampling = request.sampling
    return (sampling.width, sampling.height, sampling.num_frames)


def _volume(shape: Shape) -> int:
    width, height, frames = shape
    return max(1, width) * max(1, height) * max(1, frames)
