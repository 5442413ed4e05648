"""What holds for every request: a body that is small enough, a host that is meant, safe headers."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastvideo.errors import FailedPrecondition, FastVideoError, InvalidField, ResourceExhausted
from fastvideo_gateway.access.config import LOOPBACK, is_loopback
from fastvideo_gateway.http.answers import error_record
from fastvideo_gateway.http.bodies import Bodies, Body, bytes_max_of, too_large
from fastvideo_gateway.http.connections import HEAD_BYTES_MAX
from fastvideo_gateway.http.refusals import refusal

_SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
_HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
    }
)


class Guard:
    """Wraps an application.

    A listener on loopback answers only to the names of loopback, since any page that its user
    visits may let its own name point there. Probes come as they like. Nor may the page of another
    site change anything: browsers say where a request comes from, programs say nothing.
    """

    def __init__(self, app: ASGIApp, listen: str) -> None:
        self._app = app
        self._bodies = Bodies()
        self._local_only = is_loopback(listen)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)

        body = Body(scope, receive, send, self._bodies)

        async def send_safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await body.send(message)

        refused = self._refusal(scope, headers)
        if refused is not None:
            status, error = refused
            answer = refusal(scope["path"], error_record(error), status)
            await answer(scope, receive, send_safe)
            return
        try:
            await self._app(scope, body.receive, send_safe)
        finally:
            body.close()

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, FastVideoError] | None:
        path = scope["path"]
        name = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
        if self._local_only and not path.startswith("/health/") and name not in LOOPBACK:
            return 421, InvalidField("Host", name, "localhost or 127.0.0.1")
        if scope["method"] not in _SAFE_METHODS and _is_of_another_site(headers):
            return 403, FailedPrecondition(
                "pages of other sites may not change anything here",
                reason="CROSS_SITE",
                subject="Origin",
            )
        if sum(len(name) + len(value) for name, value in headers.raw) > HEAD_BYTES_MAX:
            return 431, ResourceExhausted(
                f"the head of a request has at most {HEAD_BYTES_MAX} bytes",
                reason="HEAD_TOO_LARGE",
                subject="headers",
            )
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > bytes_max_of(path):
            return 413, too_large(path)
        return None


def _is_of_another_site(headers: Headers) -> bool:
    """Whether a browser says that the page of another site asks."""
    site = headers.get("sec-fetch-site", "")
    if site:
        return site not in ("same-origin", "none")
    origin = headers.get("origin", "")
    return bool(origin) and origin.partition("://")[2] != headers.get("host", "")
