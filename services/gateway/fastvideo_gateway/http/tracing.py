"""Every HTTP request is a span, under its caller's where a traceparent came with it."""

import time
from typing import Final

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastvideo.telemetry import metrics
from fastvideo.telemetry.instruments import HTTP_DURATION
from fastvideo.telemetry.redaction import redact_text
from fastvideo.telemetry.tracing import SCOPE, TRACEPARENT, context_from, record_error

# Probes and scrapes come every few seconds and say nothing about anybody's request.
_UNTRACED: Final = ("/health/", "/metrics")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER: Final = "_OTHER"
_FAULTS_FROM: Final = 500


class Traced:
    """Wraps an application; the outermost of all."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._duration = metrics.histogram(HTTP_DURATION)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_UNTRACED):
            await self._app(scope, receive, send)
            return
        begun_s = time.perf_counter()
        answered: list[int] = []

        async def send_seen(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered.append(message["status"])
            await send(message)

        method = scope["method"] if scope["method"] in _METHODS else _OTHER
        with trace.get_tracer(SCOPE).start_as_current_span(
            method,
            context=context_from(Headers(scope=scope).get(TRACEPARENT, "")),
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": method,
                "url.path": redact_text(scope["path"]),
                "url.scheme": scope["scheme"],
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                await self._app(scope, receive, send_seen)
            except Exception as error:
                answered[:] = answered or [_FAULTS_FROM]
                record_error(span, error)
                raise
            finally:
                route = _route(scope)
                status = answered[0] if answered else 0
                _tell(span, method, route, status)
                labels = {
                    "http.request.method": method,
                    "http.route": route,
                    # Of a caller who left before there was an answer, none.
                    "http.response.status_code": str(status) if status else "",
                }
                self._duration.record(time.perf_counter() - begun_s, labels)


def _route(scope: Scope) -> str:
    """The path of the route that took it, with names for ids; empty where there is no such path."""
    return str(getattr(scope.get("route"), "path", ""))


def _tell(span: Span, method: str, route: str, status: int) -> None:
    if route:
        span.update_name(f"{method} {route}")
        span.set_attribute("http.route", route)
    if status:
        span.set_attribute("http.response.status_code", status)
    if status >= _FAULTS_FROM:
        span.set_status(Status(StatusCode.ERROR, str(status)))
