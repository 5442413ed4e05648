"""The JSON contract of `generate` and `request get`."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord, Producer
from fastvideo.cli.report import event_record, request_lines, request_record
from fastvideo.events.types import Event, EventMetadata
from fastvideo.requests.events import RequestProgressed
from fastvideo.requests.types import (
    ErrorDetail,
    OutputSpec,
    RequestKind,
    RequestMetrics,
    RequestSpec,
    RequestState,
    RequestStatus,
    SamplingParams,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = [
    "id",
    "status",
    "seed",
    "steps",
    "guidance_scale",
    "size",
    "num_frames",
    "fps",
    "artifacts",
    "latents_digest",
    "seconds",
]
VIDEO = ArtifactRecord(
    artifact_id="art_1",
    kind=ArtifactKind.VIDEO,
    digest="ab" * 32,
    size_bytes=1234,
    producer=Producer(),
    created_at=AT,
    completed_at=AT,
)
COMPLETED = RequestState(
    spec=RequestSpec(
        request_id="req_1",
        kind=RequestKind.GENERATION,
        model_id="moving-digits",
        sampling=SamplingParams(
            width=48, height=64, num_frames=9, fps=8, steps=20, guidance_scale=3.0, seed=7
        ),
        outputs=OutputSpec(video=True),
        defaulted=("fps",),
    ),
    status=RequestStatus.COMPLETED,
    artifacts=(VIDEO,),
    latents_digest="cd" * 32,
    metrics=RequestMetrics(total_seconds=1.5),
    accepted_at=AT,
)


@pytest.mark.row("API-06")
def test_a_completed_request_has_exactly_the_contract() -> None:
    record = request_record(COMPLETED)
    assert list(record) == KEYS
    assert json.loads(json.dumps(record)) == {
        "id": "req_1",
        "status": "completed",
        "seed": 7,
        "steps": 20,
        "guidance_scale": 3.0,
        "size": "48x64",
        "num_frames": 9,
        "fps": 8,
        "artifacts": [{"kind": "video", "digest": "ab" * 32, "bytes": 1234}],
        "latents_digest": "cd" * 32,
        "seconds": 1.5,
    }


def test_what_is_not_known_yet_is_null() -> None:
    running = replace(
        COMPLETED, status=RequestStatus.RUNNING, artifacts=(), latents_digest="", metrics=None
    )
    record = request_record(running)
    assert list(record) == KEYS
    assert (record["latents_digest"], record["seconds"], record["artifacts"]) == (None, None, [])


def test_an_artifact_that_is_not_whole_is_left_out() -> None:
    growing = replace(VIDEO, digest="", size_bytes=0, completed_at=None)
    assert request_record(replace(COMPLETED, artifacts=(growing,)))["artifacts"] == []


def test_a_failed_request_tells_its_error() -> None:
    error = ErrorDetail(
        reason="DEVICE_LOST", message="gone", subject="worker-1", attributes={"attempt": "2"}
    )
    failed = replace(COMPLETED, status=RequestStatus.FAILED, error=error)
    record = request_record(failed)
    assert list(record) == [*KEYS, "error"]
    assert record["error"]["reason"] == "DEVICE_LOST"
    assert any("DEVICE_LOST: gone" in line for line in request_lines(failed))


def test_lines_tell_which_values_were_defaults() -> None:
    lines = request_lines(COMPLETED)
    assert lines[0] == "req_1  completed"
    assert "  defaults   fps" in lines


def test_an_event_begins_with_its_sequence_number() -> None:
    event = Event(
        event_id="evt_1",
        stream_id="request-req_1",
        stream_version=4,
        type="RequestProgressed",
        name="request.progress",
        metadata=EventMetadata(occurred_at=AT),
        recorded_at=AT,
        payload=RequestProgressed(fraction=0.5, node_id="denoise", step=3, steps=6),
    )
    record = event_record(event)
    assert next(iter(record)) == "sequence"
    assert record["sequence"] == 4
    assert record["name"] == "request.progress"
    assert record["request_progressed"]["fraction"] == 0.5


def test_what_expires_says_when_and_what_has_expired_says_so() -> None:
    expires_at = datetime(2026, 1, 2, tzinfo=UTC)
    kept = replace(COMPLETED, expires_at=expires_at)
    expired = replace(kept, expired_at=expires_at)
    assert "expires_at" not in request_record(COMPLETED)
    assert request_record(kept)["expires_at"] == expires_at.isoformat()
    assert (request_record(kept)["expired"], request_record(expired)["expired"]) == (False, True)
    assert "  kept until 2026-01-02 00:00:00 UTC" in request_lines(kept)
    assert request_lines(expired)[0].endswith("completed, expired")
