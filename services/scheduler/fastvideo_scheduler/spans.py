"""The spans of live requests and of batches in flight.

A request's span hangs under the one that accepted it, however long ago and wherever that was;
a batch's hangs under its first request's and links to the others'.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from opentelemetry import trace
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
from fastvideo.telemetry.tracing import SCOPE, context_from, set_attributes, traceparent_of


@dataclass(slots=True)
class Spans:
    """Open spans; each is ended by the decision or the report that ends its subject."""

    requests: dict[str, tuple[Span, str]] = field(default_factory=dict)
    # Batch to its worker and its span.
    batches: dict[str, tuple[str, Span]] = field(default_factory=dict)

    def begin_request(self, spec: RequestSpec, traceparent: str) -> None:
        """A request came."""
        span = trace.get_tracer(SCOPE).start_span(
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
            span.set_status(Status(StatusCode.ERROR, decision.error.message))
            span.set_attribute("fastvideo.error.reason", decision.error.reason)
        elif isinstance(decision, CancelRequest):
            span.set_attribute("fastvideo.request.boundary", decision.boundary)
        span.end()

    def begin_batch(self, decision: DispatchBatch) -> str:
        """A batch goes to its worker; gives its traceparent."""
        names = dict.fromkeys(loop.request_id for loop in decision.loops)
        first, *others = [self.requests[name][0] for name in names if name in self.requests] or [
            trace.INVALID_SPAN
        ]
        span = trace.get_tracer(SCOPE).start_span(
            "scheduler.batch",
            context=trace.set_span_in_context(first),
            kind=SpanKind.PRODUCER,
            links=[Link(other.get_span_context()) for other in others],
            attributes={
                "fastvideo.batch_id": decision.batch_id,
                "fastvideo.worker_id": decision.worker_id,
                "fastvideo.batch.kind": decision.kind.value,
                "fastvideo.batch.units": len(decision.unit_ids),
                "fastvideo.batch.predicted_seconds": decision.predicted_seconds,
            },
        )
        self.batches[decision.batch_id] = (decision.worker_id, span)
        return traceparent_of(span)

    def end_batch(self, executed: BatchExecuted) -> None:
        """A worker reported a batch."""
        known = self.batches.pop(executed.batch_id, None)
        if known is None:
            return
        span = known[1]
        span.set_attribute("fastvideo.batch.measured_seconds", executed.measured_seconds)
        if any(result.error is not None for result in executed.results):
            span.set_status(Status(StatusCode.ERROR, "a unit failed"))
        span.end()

    def lose_worker(self, worker_id: str) -> None:
        """The batches of a worker will not be reported."""
        for batch_id, (owner, span) in list(self.batches.items()):
            if owner == worker_id:
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
