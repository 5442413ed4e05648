"""Requests as a running stack saw them, one JSON object a line."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastvideo.model.documents import InvalidDocument, parse
from fastvideo.requests.types import RequestState, RequestStatus
from fastvideo.simulation.bounds import number_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """What one request asked, and how long after the first one it came."""

    at_s: float
    width: int
    height: int
    num_frames: int
    steps: int
    guidance_scale: float
    model_id: str = ""
    program_id: str = ""
    tenant_id: str = ""
    priority: int = 0
    # After its acceptance.
    deadline_s: float | None = None
    # When it was cancelled, after its acceptance.
    cancelled_after_s: float | None = None


def recorded_lines(states: Iterable[RequestState]) -> Iterator[dict[str, Any]]:
    """Requests as the lines of a recording, the oldest first."""
    ordered = sorted(states, key=lambda state: (state.accepted_at, state.spec.request_id))
    for state in ordered:
        spec, sampling = state.spec, state.spec.sampling
        line: dict[str, Any] = {
            "at_s": round((state.accepted_at - ordered[0].accepted_at).total_seconds(), 6),
            "width": sampling.width,
            "height": sampling.height,
            "num_frames": sampling.num_frames,
            "steps": sampling.steps,
            "guidance_scale": sampling.guidance_scale,
            "model_id": spec.model_id,
            "program_id": spec.program_id,
            "tenant_id": spec.tenant_id,
            "priority": spec.priority,
        }
        if spec.deadline is not None:
            line["deadline_s"] = round((spec.deadline - state.accepted_at).total_seconds(), 6)
        if state.status is RequestStatus.CANCELLED and state.ended_at is not None:
            # It ended at the boundary after it was asked to.
            waited = state.ended_at - state.accepted_at
            line["cancelled_after_s"] = round(max(0.0, waited.total_seconds()), 6)
        yield line


def read_recording(path: Path) -> tuple[RecordedRequest, ...]:
    """The requests of a recording, in order.

    Raises InvalidDocument naming the file and the line that is at fault.
    """
    requests = []
    if path.exists() and not path.is_file():
        raise InvalidDocument(path.name, {"file": "is no file"})
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidDocument(path.name, {"file": f"is not UTF-8: {error}"}) from error
    except OSError as error:
        raise InvalidDocument(path.name, {"file": f"cannot be read: {error.strerror}"}) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidDocument(path.name, {f"line {number}": str(error)}) from error
        if not isinstance(data, dict):
            raise InvalidDocument(path.name, {f"line {number}": "is no JSON object"})
        request = parse(RecordedRequest, data, f"{path.name}: line {number}")
        problems = dict(number_problems(request))
        if problems:
            raise InvalidDocument(f"{path.name}: line {number}", problems)
        requests.append(request)
    return tuple(sorted(requests, key=lambda request: request.at_s))
