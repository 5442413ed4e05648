"""Where a process's traces and metrics go."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """Nothing is sent and nothing is kept, unless something is named here."""

    # A gRPC address such as "http://127.0.0.1:4317"; None sends nothing.
    otlp_endpoint: str | None = None
    # The share of traces that are recorded, 0 to 1; a trace that came from elsewhere is as its
    # caller has it.
    trace_sample: float = 1.0
    # Where spans are kept in files; None keeps none.
    trace_folder: Path | None = None
    # "host:port" of a listener for scrapers; empty does without.
    metrics_listen: str = ""
