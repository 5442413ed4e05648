"""Spans in memory for the tests of this folder."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.spans import recorded_spans


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """The spans that end during the test."""
    with recorded_spans() as exporter:
        yield exporter
