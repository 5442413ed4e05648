"""Spans in memory, for tests that look at traces."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fastvideo.telemetry import providers


class _Recorder(SimpleSpanProcessor):
    """A provider forgets no processor, so this one stops listening."""

    listening = True

    def on_end(self, span: ReadableSpan) -> None:
        if self.listening:
            super().on_end(span)


@contextmanager
def recorded_spans() -> Iterator[InMemorySpanExporter]:
    """The spans that end inside the block; OpenTelemetry allows one provider a process."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = providers.configure("test").tracer_provider
    exporter = InMemorySpanExporter()
    processor = _Recorder(exporter)
    provider.add_span_processor(processor)
    try:
        yield exporter
    finally:
        processor.listening = False
