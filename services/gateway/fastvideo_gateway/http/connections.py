"""Connections within limits: how long a head may take, who may hold how many, who must read.

What is wrong is told in HTTP's words where that is still possible: 400, 408 or 431.
"""

import asyncio
import sys
from collections import Counter, OrderedDict
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fastvideo_gateway.http.answers import to_json
from fastvideo_gateway.http.views import ErrorRecord, Refused

HEAD_BYTES_MAX: Final = 16 * 1024
# From the connection, or from the first byte of a later request, to the end of the head.
HEAD_TIMEOUT_S: Final = 5.0
# A reader that takes less than a buffer in so long holds it no longer.
WRITE_TIMEOUT_S: Final = 30.0
# How long whoever was refused may go on sending.
LINGER_S_MAX: Final = 2.0
# Connections on which no request is under way; the one that waits longest makes room.
WAITING_MAX: Final = 512
# Room for every stream there may be, and for those who only ask.
CONNECTIONS_MAX: Final = 2_048
# One address leaves room for others, such as whoever asks for health.
PEER_CONNECTIONS_MAX: Final = CONNECTIONS_MAX * 3 // 4

_WORDS: Final = {
    400: ("BAD_REQUEST", "not an HTTP request"),
    408: ("HEAD_TOO_SLOW", "the head of the request did not come in time"),
    431: ("HEAD_TOO_LARGE", f"the head of a request has at most {HEAD_BYTES_MAX} bytes"),
}


class Places:
    """The connections of a listener: by address, and those that wait for a request."""

    def __init__(self) -> None:
        self._peers: Counter[str] = Counter()
        self._waiting: OrderedDict[BoundedProtocol, None] = OrderedDict()

    def enter(self, peer: str) -> bool:
        """Count a connection; whether its address may have one more."""
        self._peers[peer] += 1
        return self._peers[peer] <= PEER_CONNECTIONS_MAX

    def leave(self, peer: str) -> None:
        """Count it no more."""
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]

    def wait(self, connection: "BoundedProtocol") -> None:
        """A connection waits for a request; when too many do, the first of them ends."""
        self._waiting[connection] = None
        if len(self._waiting) > WAITING_MAX:
            first, _ = self._waiting.popitem(last=False)
            first.hang_up()

    def go_on(self, connection: "BoundedProtocol") -> None:
        """It waits no more."""
        self._waiting.pop(connection, None)


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 that gives heads and readers a time, and says what is wrong with a head."""

    def __init__(self, *args: Any, places: Places, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = places
        self._peer = ""
        # Everything was said; what still comes is thrown away.
        self._ending = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._peer = self.client[0] if self.client else ""
        if not self._places.enter(self._peer):
            transport.abort()
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        if self._head_timer is None and not self._is_answering():
            self._expect_head()
        super().data_received(data)
        if self._is_answering():
            self._forget_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        self._forget_write()
        self._places.leave(self._peer)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and not self._is_answering():
            self._places.wait(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._forget_write()
        self._write_timer = self.loop.call_later(WRITE_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._forget_write()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Called while a RemoteProtocolError is handled, which knows the status: 400 or 431.

        A way of transfer that is not known is the caller's fault too, not 501.
        """
        error = sys.exc_info()[1]
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        self._refuse(status if status < 500 else 400)

    def hang_up(self) -> None:
        """End a connection that has waited long enough: with 408 when half of a head came."""
        if self.transport.is_closing() or self._ending:
            return
        if self.conn.trailing_data[0]:
            self._refuse(408)
        else:
            self.transport.close()

    def _refuse(self, status: int) -> None:
        reason, message = _WORDS.get(status, _WORDS[400])
        body = to_json(Refused(ErrorRecord(reason, message, "", {})))
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        try:
            for event in (
                h11.Response(status_code=status, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:
            # An answer is under way, to what looked like a request until now.
            self.transport.abort()
            return
        self._linger()

    def _linger(self) -> None:
        """Whoever still sends would lose the answer to a connection that is closed at once."""
        self._forget_head()
        self._ending = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._head_timer = self.loop.call_later(LINGER_S_MAX, self.transport.abort)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._head_is_late)
        self._places.wait(self)

    def _forget_head(self) -> None:
        self._places.go_on(self)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _forget_write(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        self.hang_up()
