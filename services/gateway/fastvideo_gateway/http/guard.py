"""What holds for every request: a body that is small enough, a host that is meant, safe headers."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastvideo.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    FastVideoError,
    InvalidField,
    ResourceExhausted,
)
from fastvideo_gateway.http.answers import error_record
from fastvideo_gateway.http.openai.asked import BODY_BYTES_MAX as OPENAI_BODY_BYTES_MAX
from fastvideo_gateway.http.openai.errors import PREFIX as OPENAI
from fastvideo_gateway.http.refusals import refusal

BODY_BYTES_MAX: Final = 256 * 1024
BODY_TIMEOUT_S: Final = 10.0
"""For the whole of a body; a file may take longer."""
OPENAI_BODY_TIMEOUT_S: Final = 60.0

_SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]", "::1")
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
        self._local_only = listen.rpartition(":")[0] in _LOOPBACK

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)

        async def send_safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        refused = self._refusal(scope, headers)
        if refused is not None:
            status, error = refused
            answer = refusal(scope["path"], error_record(error), status)
            await answer(scope, receive, send_safe)
            return
        await self._app(scope, _bounded(receive, scope["path"]), send_safe)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, FastVideoError] | None:
        path = scope["path"]
        name = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
        if self._local_only and not path.startswith("/health/") and name not in _LOOPBACK:
            return 421, InvalidField("Host", name, "localhost or 127.0.0.1")
        if scope["method"] not in _SAFE_METHODS and _is_of_another_site(headers):
            return 403, FailedPrecondition(
                "pages of other sites may not change anything here",
                reason="CROSS_SITE",
                subject="Origin",
            )
        length = headers.get("content-length", "0")
        bytes_max = bytes_max_of(path)
        if length.isdecimal() and int(length) > bytes_max:
            return 413, _too_large(bytes_max)
        return None


def _is_of_another_site(headers: Headers) -> bool:
    """Whether a browser says that the page of another site asks."""
    site = headers.get("sec-fetch-site", "")
    if site:
        return site not in ("same-origin", "none")
    origin = headers.get("origin", "")
    return bool(origin) and origin.partition("://")[2] != headers.get("host", "")


def bytes_max_of(path: str) -> int:
    """The most bytes that a body on a path may have."""
    return OPENAI_BODY_BYTES_MAX if path.startswith(OPENAI) else BODY_BYTES_MAX


def _too_large(bytes_max: int) -> ResourceExhausted:
    return ResourceExhausted(
        f"a body has at most {bytes_max} bytes", reason="BODY_TOO_LARGE", subject="body"
    )


def _bounded(receive: Receive, path: str) -> Receive:
    """The same, within the limits of bytes and time of a path."""
    bytes_max = bytes_max_of(path)
    timeout_s = OPENAI_BODY_TIMEOUT_S if path.startswith(OPENAI) else BODY_TIMEOUT_S
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    received = 0
    complete = False

    async def bounded() -> Message:
        nonlocal received, complete
        if complete:
            return await receive()
        try:
            async with asyncio.timeout_at(deadline_s):
                message = await receive()
        except TimeoutError as error:
            raise DeadlineExceeded("the body did not come in time", subject="body") from error
        received += len(message.get("body", b""))
        if received > bytes_max:
            raise _too_large(bytes_max)
        complete = not message.get("more_body", False)
        return message

    return bounded
