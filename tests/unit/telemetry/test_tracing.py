"""Spans, traceparents and errors on spans."""

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from fastvideo.errors import NotFound
from fastvideo.telemetry import providers, tracing
from fastvideo.telemetry.config import TelemetryConfig

REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_outside_a_span_there_is_no_traceparent() -> None:
    assert tracing.current_traceparent() == ""
    assert tracing.current_trace_id() == ""


def test_a_traceparent_joins_spans_of_two_places(spans: InMemorySpanExporter) -> None:
    with tracing.span("submit"):
        traceparent = tracing.current_traceparent()
        trace_id = tracing.current_trace_id()
    assert traceparent.split("-")[1] == trace_id
    with tracing.span_from(traceparent, "schedule"):
        assert tracing.current_trace_id() == trace_id
    submit, schedule = spans.get_finished_spans()
    assert schedule.parent is not None
    assert schedule.parent.span_id == submit.context.span_id
    assert schedule.context.trace_id == submit.context.trace_id


def test_a_remote_traceparent_wins_over_the_current_span(spans: InMemorySpanExporter) -> None:
    with tracing.span("outer"), tracing.span_from(REMOTE, "inner"):
        assert tracing.current_trace_id() == REMOTE.split("-")[1]


@pytest.mark.parametrize("traceparent", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_malformed_traceparent_starts_a_new_trace(
    traceparent: str, spans: InMemorySpanExporter
) -> None:
    with tracing.span_from(traceparent, "consume"):
        assert len(tracing.current_trace_id()) == 32
    assert spans.get_finished_spans()[0].parent is None


def test_a_typed_error_marks_its_span_with_reason_and_subject(
    spans: InMemorySpanExporter,
) -> None:
    with pytest.raises(NotFound), tracing.span("get"):
        raise NotFound("no request req_1", subject="req_1")
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["fastvideo.error.reason"] == "NOT_FOUND"
    assert span.attributes["fastvideo.error.subject"] == "req_1"
    assert span.events == ()


def test_a_bug_leaves_its_stack_without_secrets(spans: InMemorySpanExporter) -> None:
    with pytest.raises(OSError, match="refused"), tracing.span("connect"):
        raise OSError("postgresql://app:hunter2@db refused")
    (span,) = spans.get_finished_spans()
    (event,) = span.events
    assert event.attributes is not None
    assert "test_tracing.py" in str(event.attributes["exception.stacktrace"])
    assert "hunter2" not in str(dict(event.attributes)) + str(span.status.description)


def test_a_deep_stack_is_cut_to_its_end_and_not_warned_of(
    spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    def fall(depth: int) -> None:
        if depth == 0:
            raise KeyError("the bottom")
        fall(depth - 1)

    with pytest.raises(KeyError), tracing.span("deep"):
        fall(50)
    (event,) = spans.get_finished_spans()[0].events
    assert event.attributes is not None
    stack = str(event.attributes["exception.stacktrace"])
    assert len(stack) <= tracing.TEXT_CHARACTERS_MAX
    assert stack.strip().endswith("KeyError: 'the bottom'")
    assert "truncating" not in caplog.text


def test_attributes_hold_no_secrets(spans: InMemorySpanExporter) -> None:
    attributes: dict[str, str | bool | int | float] = {
        "db.password": "hunter2",
        "db.url": "redis://u:hunter2@h",
        "fastvideo.step": 3,
    }
    with tracing.span("step", attributes) as span:
        tracing.set_attributes(span, {"http.authorization": "Bearer hunter2"})
    (ended,) = spans.get_finished_spans()
    assert ended.attributes is not None
    assert "hunter2" not in str(dict(ended.attributes))
    assert ended.attributes["fastvideo.step"] == 3


def test_without_an_endpoint_spans_have_ids_and_nothing_is_sent() -> None:
    telemetry = providers.build("quiet")
    with telemetry.tracer_provider.get_tracer("t").start_as_current_span("work"):
        assert tracing.current_traceparent()
    assert telemetry.flush()
    telemetry.shutdown()


@pytest.mark.parametrize("sample", [0.0, 1.0])
def test_a_trace_from_elsewhere_is_recorded_as_its_caller_has_it(sample: float) -> None:
    telemetry = providers.build("test", TelemetryConfig(trace_sample=sample))
    tracer = telemetry.tracer_provider.get_tracer("test")
    for flag, recorded in (("01", True), ("00", False)):
        context = tracing.context_from(f"{REMOTE[:-2]}{flag}")
        span = tracer.start_span("door", context=context)
        assert span.is_recording() is recorded
        # Events name the trace all the same.
        assert tracing.traceparent_of(span).split("-")[1] == REMOTE.split("-")[1]
    assert tracer.start_span("new").is_recording() is bool(sample)
    telemetry.shutdown()
