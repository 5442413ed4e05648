"""Logs as one JSON object a line, bound to the trace and to the request they belong to."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

import structlog
from opentelemetry import trace
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.typing import EventDict, Processor, WrappedLogger

from fastvideo.telemetry.redaction import redact

# Libraries that tell of every packet at INFO.
_QUIET: Final = ("nats", "grpc", "sqlalchemy.engine", "alembic", "opentelemetry", "asyncio")


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module; `configure` decides where its lines go.

    In a program that configures nothing, warnings reach standard error and the rest is quiet,
    as with any Python library.
    """
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    return logger


def configure(service_name: str, *, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send the logs of this process, and of the libraries in it, to a stream as JSON lines.

    `level` is a name of the standard library's, in either case. The default stream is standard
    error, since standard output belongs to a program's results.
    """

    def add_service(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["service"] = service_name
        return event

    shared: list[Processor] = [
        merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        add_service,
        _add_trace,
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[
            *shared,
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _redact_event,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(default=str),
        ],
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in _QUIET:
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.captureWarnings(True)


@contextmanager
def bound(**fields: str) -> Iterator[None]:
    """Put fields such as `request_id` on every log line of the block; empty ones are left out."""
    with bound_contextvars(**{key: value for key, value in fields.items() if value}):
        yield


def _add_trace(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def _redact_event(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    return {key: redact(value, key) for key, value in event.items()}
