"""One trace from the command line to the artifact, over every process in between."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, poll, running_stack
from tests.otlp import OtlpReceiver, ReceivedSpan, otlp_receiver

STEPS = 6
SERVICES = {"fastvideo-cli", "gateway", "scheduler", "worker", "artifacts"}


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as running:
        yield running


@pytest.fixture(scope="module")
def traced_stack(receiver: OtlpReceiver) -> Iterator[Stack]:
    """A stack that exports its spans, as do the commands that are run against it."""
    with running_stack(environment={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}) as stack:
        yield stack


def trace_of(receiver: OtlpReceiver, request_id: str) -> list[ReceivedSpan]:
    """All spans of the trace of a request, once each service has sent some and none is an orphan.

    Services send at intervals of their own, and a parent ends after its children.
    """

    def whole() -> list[ReceivedSpan] | None:
        spans = receiver.spans
        ids = {s.trace_id for s in spans if s.attributes.get("fastvideo.request_id") == request_id}
        if len(ids) != 1:
            return None
        found = [span for span in spans if span.trace_id in ids]
        known = {span.span_id for span in found} | {""}
        done = all(span.parent_id in known for span in found)
        return found if done and {span.service for span in found} >= SERVICES else None

    return poll(f"the whole trace of {request_id}", whole)


@pytest.mark.row("OBS-03")
def test_one_trace_joins_client_services_batches_and_artifact(
    traced_stack: Stack, receiver: OtlpReceiver, tmp_path: Path
) -> None:
    told = traced_stack.generate(
        "a red three moving left", "--steps", str(STEPS), "-o", str(tmp_path / "three.mp4")
    )
    spans = trace_of(receiver, told["id"])

    (root,) = [span for span in spans if span.parent_id == ""]
    assert (root.service, root.name) == ("fastvideo-cli", "fastvideo.generate")
    assert {span.service for span in spans} == SERVICES
    assert [span for span in spans if span.failed] == []
    kinds: Counter[str] = Counter()
    for span in spans:
        if span.name == "scheduler.batch":
            units = int(span.attributes["fastvideo.batch.units"])
            kinds[str(span.attributes["fastvideo.batch.kind"])] += units
    assert kinds["diffusion_step"] == STEPS
    assert kinds.keys() >= {"encoder_chunk", "vae_tile", "artifact_write"}
    # Each batch is a span of the scheduler that decided it, and under it one of its worker.
    batches = {span.span_id for span in spans if span.name == "scheduler.batch"}
    assert {span.parent_id for span in spans if span.name == "worker.batch"} == batches
    by_id = {span.span_id: span for span in spans}
    (stored,) = [
        span for span in spans if span.service == "artifacts" and span.name.endswith("/PutArtifact")
    ]
    writer = by_id[by_id[stored.parent_id].parent_id]
    assert (writer.service, writer.name) == ("worker", "worker.batch")


@pytest.mark.row("OBS-03")
def test_the_log_names_the_trace_of_a_request(
    traced_stack: Stack, receiver: OtlpReceiver, tmp_path: Path
) -> None:
    told = traced_stack.generate(
        "a blue seven moving up", "--steps", "2", "-o", str(tmp_path / "seven.mp4")
    )
    trace_id = trace_of(receiver, told["id"])[0].trace_id
    events = traced_stack.watch(told["id"])
    assert {event["metadata"]["traceparent"].split("-")[1] for event in events} == {trace_id}


def test_two_requests_have_two_traces(
    traced_stack: Stack, receiver: OtlpReceiver, tmp_path: Path
) -> None:
    ids = [
        traced_stack.generate(
            "a green two moving down", "--steps", "2", "-o", str(tmp_path / f"{index}.mp4")
        )["id"]
        for index in range(2)
    ]
    first, second = (trace_of(receiver, request_id)[0].trace_id for request_id in ids)
    assert first != second
