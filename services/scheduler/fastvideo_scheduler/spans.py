"""The spans of live requests and of batches in flight.

A request's span hangs under the one that accepted it, however long ago and wherever that was;
a batch's hangs under its first request's and links to the others'.
"""

from collections.abc import Iterable

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.effects import TERMINAL
from fastvideo.scheduling.events import (
    BatchExecuted,
    CancelRequest,
    Decision,
    DispatchBatch,
    FailRequest,
)
from fastvideo.telemetry.tracing import (
    SCOPE,
    context_from,
    fail,
    set_attributes,
    traceparent_of,
)


class Spans:
    """Open spans; each is ended by the decision or the report that ends its subject."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer(SCOPE)
        # Request to its span and traceparent; batch to its decision and span.
        self.requests: dict[str, tuple[Span, str]] = {}
        self.batches: dict[str, tuple[DispatchBatch, Span]] = {}

    def begin_request(self, spec: RequestSpec, traceparent: str) -> None:
        """A request came."""
        span = self._tracer.start_span(
            "scheduler.request",
            context=context_from(traceparent),
            kind=SpanKind.CONSUMER,
            attributes={
                "fastvideo.request_id": spec.request_id,
                "fastvideo.model_id": spec.model_id,
                "fastvideo.program_id": spec.program_id,
            },
        )
        self.requests[spec.request_id] = (span, traceparent_of(span) or traceparent)

    def traceparent(self, request_id: str) -> str:
        """The traceparent of a request's span; empty when it has none."""
        known = self.requests.get(request_id)
        return known[1] if known is not None else ""

    def context_of_request(self, request_id: str) -> Context | None:
        """Where a request's span is current, for what is measured of it; None when it has none."""
        known = self.requests.get(request_id)
        return trace.set_span_in_context(known[0], Context()) if known is not None else None

    def context_of_batch(self, batch_id: str) -> Context | None:
        """Where a batch's span is current."""
        known = self.batches.get(batch_id)
        return trace.set_span_in_context(known[1], Context()) if known is not None else None

    def end_request(self, decision: Decision) -> None:
        """A request ended by that decision."""
        if not isinstance(decision, TERMINAL):
            return
        known = self.requests.pop(decision.request_id, None)
        if known is None:
            return
        span = known[0]
        metrics = decision.metrics
        set_attributes(
            span,
            {
                "fastvideo.request.outcome": type(decision).__name__,
                "fastvideo.request.units": metrics.units,
                "fastvideo.request.attempts": metrics.attempts,
                "fastvideo.request.device_seconds": metrics.device_seconds,
                "fastvideo.request.queue_seconds": metrics.queue_seconds,
            },
        )
        if isinstance(decision, FailRequest):
            fail(span, decision.error.reason, decision.error.message)
        elif isinstance(decision, CancelRequest):
            span.set_attribute("fastvideo.request.boundary", decision.boundary)
        span.end()

    def begin_batch(self, decision: DispatchBatch) -> str:
        """A batch goes to its worker; gives its traceparent.

        The worker waits for this, so all that can be said later is said at the end.
        """
        names = dict.fromkeys(loop.request_id for loop in decision.loops)
        known = [self.requests[name][0] for name in names if name in self.requests]
        first = known[0] if known else trace.INVALID_SPAN
        span = self._tracer.start_span(
            "scheduler.batch",
            context=trace.set_span_in_context(first),
            kind=SpanKind.PRODUCER,
            links=[Link(other.get_span_context()) for other in known[1:]],
        )
        self.batches[decision.batch_id] = (decision, span)
        for other in known[1:]:
            # Whoever has a request's trace alone finds the batches that are in others'.
            other.add_link(span.get_span_context())
        context = span.get_span_context()
        if not context.is_valid:
            return ""
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def end_batch(self, executed: BatchExecuted) -> None:
        """A worker reported a batch."""
        known = self.batches.pop(executed.batch_id, None)
        if known is None:
            return
        decision, span = known
        span.set_attributes(
            {
                "fastvideo.batch_id": decision.batch_id,
                "fastvideo.worker_id": decision.worker_id,
                "fastvideo.batch.kind": decision.kind.value,
                # All that ran, the steps of a window one by one.
                "fastvideo.batch.units": len(executed.results),
                "fastvideo.batch.window": decision.window,
                "fastvideo.batch.predicted_seconds": decision.predicted_seconds,
                "fastvideo.batch.measured_seconds": executed.measured_seconds,
            }
        )
        failure = next((r.error for r in executed.results if r.error is not None), None)
        if failure is not None:
            fail(span, failure.reason, failure.message)
        span.end()

    def lose_worker(self, worker_id: str) -> None:
        """The batches of a worker will not be reported."""
        for batch_id, (decision, span) in list(self.batches.items()):
            if decision.worker_id == worker_id:
                del self.batches[batch_id]
                _abandon([span], "the worker was lost")

    def close(self) -> None:
        """End all: this scheduler leads no longer."""
        _abandon((span for span, _ in self.requests.values()), "the scheduler leads no longer")
        _abandon((span for _, span in self.batches.values()), "the scheduler leads no longer")
        self.requests.clear()
        self.batches.clear()


def _abandon(spans: Iterable[Span], why: str) -> None:
    for span in spans:
        span.set_status(Status(StatusCode.ERROR, why))
        span.end()
