"""What an in-process request gives."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.errors import DeadlineExceeded, InvalidField, NotFound
from fastvideo.media.video import Frames
from fastvideo.requests.types import RequestMetrics, RequestSpec
from fastvideo.scheduling.traces import BehaviorRecorded, TraceNote

# Notes that are kept of a request; one that traces every step has a few thousand.
_NOTES_MAX: Final = 10_000

_NAME_OF_SUFFIX: Final[Mapping[str, str]] = {
    ".mp4": "video.mp4",
    ".png": "sheet.png",
    ".safetensors": "latents.safetensors",
    ".json": "scores.json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One output file, in memory."""

    record: ArtifactRecord
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A completed request: every value that was used, and all that came of it."""

    request: RequestSpec
    artifacts: tuple[Artifact, ...] = ()
    # SHA-256 of the final latents' float32 bytes; empty when the program has none.
    latents_digest: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
    # What its loops noted on the way, the latest if they were many: caches, traces, behaviour.
    notes: tuple[TraceNote, ...] = field(default=(), repr=False)

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def seed(self) -> int:
        """The seed that was used, given or drawn."""
        return self.request.sampling.seed

    @property
    def behaviors(self) -> tuple[BehaviorRecorded, ...]:
        """What the policy did, a record a sample, where `outputs.capture` asked for it."""
        return tuple(note for note in self.notes if isinstance(note, BehaviorRecorded))

    def artifact(self, artifact_id: str) -> bytes:
        """The bytes of one of its artifacts. Raises NotFound."""
        for artifact in self.artifacts:
            if artifact.record.artifact_id == artifact_id:
                return artifact.data
        raise NotFound(f"the request made no artifact {artifact_id}", subject=artifact_id)

    def save(self, path: Path | str) -> Path:
        """Write the artifact of the path's suffix: .mp4, .png, .safetensors or .json.

        Raises InvalidField when the request made no such file.
        """
        target = Path(path)
        wanted = _NAME_OF_SUFFIX.get(target.suffix)
        for artifact in self.artifacts:
            if artifact.record.name == wanted:
                target.write_bytes(artifact.data)
                return target
        made = {artifact.record.name for artifact in self.artifacts}
        suffixes = [suffix for suffix, name in _NAME_OF_SUFFIX.items() if name in made]
        raise InvalidField("path", target.name, f"a name that ends in {' or '.join(suffixes)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Video(Generation):
    """A completed generation with its frames."""

    # uint8 [T, H, W, 3], as they left the decoder.
    frames: Frames = field(repr=False)

    @property
    def fps(self) -> int:
        """Frames per second."""
        return self.request.sampling.fps

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return len(self.frames) / self.fps


class RequestHandle:
    """A request that runs; safe to use from any thread."""

    def __init__(self, request: RequestSpec, cancel: Callable[[str, str], None]) -> None:
        self.request = request
        self._cancel = cancel
        self._ended: Future[Generation] = Future()
        self._progress = 0.0
        self._notes: deque[TraceNote] = deque(maxlen=_NOTES_MAX)

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def progress(self) -> float:
        """How far it is, from 0 to 1."""
        return self._progress

    @property
    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._ended.done()

    def cancel(self, reason: str = "") -> None:
        """Stop it at its next boundary; nothing happens when it has ended."""
        self._cancel(self.request_id, reason)

    def result(self, timeout_s: float | None = None) -> Generation:
        """What it gave; blocks until it ends.

        Raises what it failed of, Cancelled when it was cancelled, and DeadlineExceeded when it
        did not end within the time.
        """
        try:
            return self._ended.result(timeout_s)
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"request {self.request_id} did not end within {timeout_s} s"
            ) from error

    @property
    def notes(self) -> tuple[TraceNote, ...]:
        """What its loops have noted, the latest if they were many."""
        return tuple(self._notes)

    def note(self, notes: Sequence[TraceNote]) -> None:
        """Called by the engine as its loops note something."""
        self._notes.extend(notes)

    def report(self, progress: float) -> None:
        """Called by the engine as the request goes on."""
        self._progress = progress

    def complete(self, generation: Generation) -> None:
        """Called by the engine once: it completed."""
        self._progress = 1.0
        self._ended.set_result(generation)

    def fail(self, error: Exception) -> None:
        """Called by the engine once: it failed or was cancelled."""
        self._ended.set_exception(error)
