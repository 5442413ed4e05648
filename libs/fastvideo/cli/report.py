"""What commands print: a request as JSON or as lines for people."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict

from fastvideo import wire
from fastvideo.events.types import Event
from fastvideo.requests.types import RequestState


def request_record(state: RequestState) -> dict[str, Any]:
    """The JSON of `generate` and `request get`: these keys, and `error` when it failed.

    `seconds` is from accepted to ended, and null until then, as is `latents_digest`. With a
    lifetime there are `expires_at`, and `expired`: whether that has passed.
    """
    sampling = state.spec.sampling
    record: dict[str, Any] = {
        "id": state.spec.request_id,
        "status": state.status.value,
        "seed": sampling.seed,
        "steps": sampling.steps,
        "guidance_scale": sampling.guidance_scale,
        "size": f"{sampling.width}x{sampling.height}",
        "num_frames": sampling.num_frames,
        "fps": sampling.fps,
        "artifacts": [
            {"kind": artifact.kind.value, "digest": artifact.digest, "bytes": artifact.size_bytes}
            for artifact in state.artifacts
            if artifact.completed_at is not None
        ],
        "latents_digest": state.latents_digest or None,
        "seconds": state.metrics.total_seconds if state.metrics is not None else None,
    }
    if state.expires_at is not None:
        record["expires_at"] = state.expires_at.isoformat()
        record["expired"] = state.expired_at is not None
    if state.error is not None:
        record["error"] = {
            "reason": state.error.reason,
            "message": state.error.message,
            "subject": state.error.subject,
            "attributes": dict(state.error.attributes),
        }
    return record


def request_lines(state: RequestState) -> list[str]:
    """A request for people."""
    record = request_record(state)
    lines = [
        f"{record['id']}  {record['status']}{', expired' if state.expired_at else ''}",
        f"  model      {state.spec.model_id}",
        f"  sampling   seed {record['seed']}, {record['steps']} steps, "
        f"guidance {record['guidance_scale']:g}, {record['size']}, "
        f"{record['num_frames']} frames at {record['fps']} fps",
    ]
    if sampler := state.spec.sampling.sampler:
        lines.append(f"  sampler    {sampler}, noise level {state.spec.sampling.noise_level:g}")
    if state.spec.defaulted:
        lines.append(f"  defaults   {', '.join(state.spec.defaulted)}")
    lines += [
        f"  {artifact['kind']:<10} {artifact['bytes']} bytes, sha256 {artifact['digest']}"
        for artifact in record["artifacts"]
    ]
    if record["latents_digest"]:
        lines.append(f"  latents    sha256 {record['latents_digest']}")
    if record["seconds"] is not None:
        lines.append(f"  seconds    {record['seconds']:.2f}")
    if state.expires_at is not None:
        word = "expired   " if state.expired_at else "kept until"
        lines.append(f"  {word} {state.expires_at:%Y-%m-%d %H:%M:%S} UTC")
    if state.error is not None:
        lines.append(f"  error      {state.error.reason}: {state.error.message}")
    return lines


def event_record(event: Event) -> dict[str, Any]:
    """An event as JSON: its sequence number first, then the envelope and the payload."""
    message: dict[str, Any] = MessageToDict(wire.to_proto(event), preserving_proto_field_name=True)
    return {"sequence": event.stream_version, **message}


def plain_record(value: Any) -> dict[str, Any]:
    """A domain value as JSON, with the field names of its message."""
    record: dict[str, Any] = MessageToDict(
        wire.to_proto(value),
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    return record


def print_json(record: object) -> None:
    """One line of JSON on standard output."""
    print_lines([json.dumps(record)])


def print_lines(lines: Sequence[str]) -> None:
    """Lines on standard output."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
