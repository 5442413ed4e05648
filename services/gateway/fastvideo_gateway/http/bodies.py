"""Bodies within limits: of one in bytes and time, and of all that are under way in bytes.

Whoever is refused before the end of his body has to read the answer, and does so only once he has
sent his own part; for a moment the rest is taken in and thrown away, then the connection ends.
"""

import asyncio
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from fastvideo.errors import DeadlineExceeded, ResourceExhausted
from fastvideo_gateway.http.answers import BODY_TOO_LARGE, BODY_TOO_SLOW
from fastvideo_gateway.http.openai.asked import BODY_BYTES_MAX as OPENAI_BODY_BYTES_MAX
from fastvideo_gateway.http.openai.errors import PREFIX as OPENAI

BODY_BYTES_MAX: Final = 256 * 1024
BODY_TIMEOUT_S: Final = 10.0
"""For the whole of a body; a file may take longer."""
OPENAI_BODY_TIMEOUT_S: Final = 60.0
# Of all bodies that are being received or answered.
ALL_BYTES_MAX: Final = 512 * 1024 * 1024
LINGER_S_MAX: Final = 2.0
LINGER_BYTES_MAX: Final = 64 * 1024 * 1024


def bytes_max_of(path: str) -> int:
    """The most bytes that a body on a path may have."""
    return OPENAI_BODY_BYTES_MAX if path.startswith(OPENAI) else BODY_BYTES_MAX


def too_large(path: str) -> ResourceExhausted:
    """The refusal of a body that has more."""
    bytes_max = bytes_max_of(path)
    return ResourceExhausted(
        f"a body has at most {bytes_max} bytes",
        reason=BODY_TOO_LARGE,
        subject="body",
        attributes={"limit_bytes": str(bytes_max)},
    )


class Bodies:
    """How many bytes of bodies are held, over all requests."""

    def __init__(self, bytes_max: int = ALL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held = 0

    def take(self, size: int) -> None:
        """Hold more. Raises ResourceExhausted when all of them together have too many."""
        if self._held + size > self._bytes_max:
            raise ResourceExhausted(
                "too many bodies are being received; try again in a second",
                reason="TOO_MANY_BODIES",
                subject="body",
                attributes={"retry_after_s": "1"},
            )
        self._held += size

    def give_back(self, size: int) -> None:
        """Hold less."""
        self._held -= size


class Body:
    """The body of one request, and the answer to it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, bodies: Bodies) -> None:
        headers = Headers(scope=scope)
        self._path: str = scope["path"]
        self._receive = receive
        self._send = send
        self._bodies = bodies
        self._received = 0
        self._complete = "transfer-encoding" not in headers and (
            headers.get("content-length", "0") == "0"
        )
        openai = self._path.startswith(OPENAI)
        timeout_s = OPENAI_BODY_TIMEOUT_S if openai else BODY_TIMEOUT_S
        self._deadline_s = asyncio.get_running_loop().time() + timeout_s

    async def receive(self) -> Message:
        """The next part. Raises ResourceExhausted and DeadlineExceeded beyond the limits."""
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline_s):
                message = await self._receive()
        except TimeoutError as error:
            raise DeadlineExceeded(
                "the body did not come in time", reason=BODY_TOO_SLOW, subject="body"
            ) from error
        size = len(message.get("body", b""))
        if self._received + size > bytes_max_of(self._path):
            raise too_large(self._path)
        self._bodies.take(size)
        self._received += size
        self._complete = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Hand on a part of the answer; after one that came before its time, hang up."""
        if self._complete:
            await self._send(message)
            return
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["Connection"] = "close"
            await self._send(message)
            return
        if message["type"] != "http.response.body" or message.get("more_body", False):
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        await self._throw_away()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def close(self) -> None:
        """Hold nothing any more."""
        self._bodies.give_back(self._received)
        self._received = 0

    async def _throw_away(self) -> None:
        seen = 0
        try:
            async with asyncio.timeout(LINGER_S_MAX):
                while seen < LINGER_BYTES_MAX:
                    message = await self._receive()
                    seen += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return
        except TimeoutError:
            return
