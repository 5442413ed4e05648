"""One generation from the command line: submit, show progress, fetch the files, tell the result."""

import asyncio
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from opentelemetry.trace import SpanKind

from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.cli.config import load_config
from fastvideo.cli.connection import Target, find_or_start_gateway
from fastvideo.cli.failures import EXIT_FAILED, EXIT_INTERRUPTED, tell
from fastvideo.cli.progress import ProgressView, progress_view
from fastvideo.cli.report import print_json, print_lines, request_lines, request_record
from fastvideo.cli.running import run
from fastvideo.client import AsyncClient
from fastvideo.client.ending import within
from fastvideo.client.submission import renamed
from fastvideo.errors import InvalidField, NotFound
from fastvideo.requests.types import (
    Capture,
    OutputSpec,
    RequestState,
    RequestStatus,
    SamplingOverrides,
    TraceLevel,
)
from fastvideo.telemetry import tracing

# How long a cancelled request may take to reach its next boundary, seconds.
CANCEL_S_MAX = 10.0


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What was asked on the command line; None takes the model's default."""

    prompt: str
    model_id: str
    # The file that the video starts from.
    image: Path | None = None
    output: Path | None = None
    sheet: Path | None = None
    preview: Path | None = None
    latents: Path | None = None
    steps: int | None = None
    guidance_scale: float | None = None
    seed: int | None = None
    num_frames: int | None = None
    width: int | None = None
    height: int | None = None
    fps: int | None = None
    negative_prompt: str | None = None
    sampler: str | None = None
    noise_level: float | None = None
    capture: Capture | None = None
    trace: TraceLevel | None = None
    session_id: str = ""
    ttl_s: int | None = None

    @property
    def sampling(self) -> SamplingOverrides:
        """The sampling parameters that were given."""
        return SamplingOverrides(
            width=self.width,
            height=self.height,
            num_frames=self.num_frames,
            fps=self.fps,
            steps=self.steps,
            guidance_scale=self.guidance_scale,
            seed=self.seed,
            sampler=self.sampler,
            noise_level=self.noise_level,
        )

    @property
    def outputs(self) -> OutputSpec:
        """What the server is to make."""
        return OutputSpec(
            video=True,
            sheet=self.sheet is not None,
            latents=self.latents is not None,
            preview=self.preview is not None,
            capture=self.capture,
            trace=self.trace,
            ttl_s=self.ttl_s,
        )


def run_generation(asked: Generation, gateway: str, data: Path | None, *, as_json: bool) -> int:
    """Do it, and give the exit code."""
    places = {
        "--output": asked.output,
        "--sheet": asked.sheet,
        "--preview": asked.preview,
        "--latents": asked.latents,
    }
    _require_places(places)
    if asked.image is not None:
        _require_readable("--image", asked.image)
    target = find_or_start_gateway(load_config(os.environ), gateway, data)
    return run(_generate(asked, target, as_json=as_json))


async def _generate(asked: Generation, target: Target, *, as_json: bool) -> int:
    with tracing.span("fastvideo.generate", kind=SpanKind.CLIENT):
        async with target.client() as client:
            with progress_view() as view:
                state = await _submit_and_wait(client, asked, view)
            files = _files(asked, state, as_json=as_json)
            for name, path in files.items():
                await _fetch(client, state, name, path)
    _tell_result(state, files, as_json=as_json)
    if state.status is RequestStatus.CANCELLED:
        return EXIT_INTERRUPTED
    return 0 if state.status is RequestStatus.COMPLETED else EXIT_FAILED


async def _submit_and_wait(
    client: AsyncClient, asked: Generation, view: ProgressView
) -> RequestState:
    """The ended request; an interrupt on the way cancels it and waits for that."""
    image = None if asked.image is None else await _upload(client, asked.image)
    submit = asyncio.ensure_future(
        client.submit(
            asked.prompt,
            model_id=asked.model_id,
            image=image,
            negative_prompt=asked.negative_prompt,
            sampling=asked.sampling,
            outputs=asked.outputs,
            session_id=asked.session_id,
            idempotency_key=uuid.uuid4().hex,
        )
    )
    try:
        # Shielded: a submit that was sent may be durable, and only its answer has the id.
        request_id = (await asyncio.shield(submit)).spec.request_id
        return await client.wait(request_id, on_event=view.show)
    except asyncio.CancelledError:
        request_id = (await submit).spec.request_id
        tell(f"cancelling {request_id} ...")
        async with within(CANCEL_S_MAX, f"the cancellation of {request_id}"):
            await client.cancel(request_id, reason="interrupted at the command line")
            state = await client.wait(request_id)
        tell(f"{request_id} {state.status.value}")
        raise


async def _upload(client: AsyncClient, path: Path) -> ArtifactRecord:
    with renamed({"source": "--image"}):
        return await client.upload(path)


def _files(asked: Generation, state: RequestState, *, as_json: bool) -> dict[str, Path]:
    """Which artifacts of a completed request, by name, go into which files."""
    if state.status is not RequestStatus.COMPLETED:
        return {}
    video = asked.output
    if video is None and not as_json:
        video = Path(f"{state.spec.request_id}.mp4")
    wanted = {
        "video.mp4": video,
        "preview.mp4": asked.preview,
        "sheet.png": asked.sheet,
        "latents.safetensors": asked.latents,
    }
    return {name: path for name, path in wanted.items() if path is not None}


async def _fetch(client: AsyncClient, state: RequestState, name: str, path: Path) -> None:
    record = next((artifact for artifact in state.artifacts if artifact.name == name), None)
    if record is None:
        raise NotFound(f"the request has no artifact {name}", subject=name)
    await client.save_artifact(record.artifact_id, path)


def _tell_result(state: RequestState, files: dict[str, Path], *, as_json: bool) -> None:
    if as_json:
        print_json(request_record(state))
    else:
        print_lines([*request_lines(state), *(f"wrote {path}" for path in files.values())])
    if state.error is not None:
        tell(f"error: {state.error.message} ({state.error.reason})")


def _require_readable(option: str, path: Path) -> None:
    """Refuse, before anything is started, a file that cannot be read."""
    if not path.is_file() or not os.access(path, os.R_OK):
        raise InvalidField(option, str(path), "a file that you may read")


def _require_places(paths: Mapping[str, Path | None]) -> None:
    """Refuse files that could not be written, and two that would be one."""
    taken: dict[Path, str] = {}
    for option, path in paths.items():
        if path is None:
            continue
        _require_writable(option, path)
        other = taken.setdefault(path.resolve(), option)
        if other != option:
            raise InvalidField(option, str(path), f"another file than that of {other}")


def _require_writable(option: str, path: Path) -> None:
    """Refuse, before anything is computed, a file that could not be written at the end."""
    if path.is_dir():
        raise InvalidField(option, str(path), "a file, not a folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidField(option, str(path), f"a writable path: {error.strerror}") from error
    try:
        # Permissions say less than trying: root may write everywhere, and not to /proc.
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        allowed = f"a file in a folder that you may write to: {error.strerror}"
        raise InvalidField(option, str(path), allowed) from error
