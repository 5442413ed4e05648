"""What all calls of one client share: where they go, how patient they are, and whether they may."""

import asyncio
import os
from dataclasses import replace
from typing import Any

from fastvideo.client.calls import CallPolicy, call
from fastvideo.errors import FailedPrecondition, InvalidField, Unavailable
from fastvideo.rpc.handshakes import try_handshake
from fastvideo.rpc.tls import ClientTls

CLIENT_CLOSED = "CLIENT_CLOSED"


class Calls:
    """Makes the calls of one client, as long as it may be used.

    Every call that goes through here may be tried again: reads change nothing, what makes
    something carries an idempotency key, and the others say the same thing twice.
    """

    def __init__(self, address: str, policy: CallPolicy, tls: ClientTls | None = None) -> None:
        self.address = address
        self._tls = tls
        self.policy = policy
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._closed

    @property
    def forked(self) -> bool:
        """Whether this is another process than the one that made the client."""
        return os.getpid() != self._process

    def close(self) -> None:
        """From now on `check` refuses."""
        self._closed = True

    def check(self) -> None:
        """Raise FailedPrecondition for a client that cannot be used here.

        Reasons: CLIENT_CLOSED; FORKED, in a child of the process that made it; OTHER_LOOP, in
        another event loop than its first call was in.
        """
        if self._closed:
            raise FailedPrecondition(
                "the client is closed; make another", reason=CLIENT_CLOSED, subject="client"
            )
        if self.forked:
            raise FailedPrecondition(
                "the client was made before this process was forked; make one here",
                reason="FORKED",
                subject="client",
            )
        running = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = running
        if self._loop is not running:
            raise FailedPrecondition(
                "the client belongs to another event loop; make one in each",
                reason="OTHER_LOOP",
                subject="client",
            )

    async def __call__(self, method: Any, request: Any, timeout_s: float | None = None) -> Any:
        """The answer, within `timeout_s` seconds or the policy's.

        Raises what the server refuses, Unavailable naming the address when nobody answers in
        time, and DeadlineExceeded when somebody took too long.
        """
        self.check()
        try:
            return await call(method, request, self.within(timeout_s), self._why_closed)
        except Unavailable as error:
            error.subject = error.subject or self.address
            raise

    async def _why_closed(self) -> Unavailable | None:
        return await try_handshake(self.address, self._tls)

    def within(self, timeout_s: float | None) -> CallPolicy:
        """The policy with another bound, if there is one. Raises InvalidField for none above 0."""
        if timeout_s is None:
            return self.policy
        if not timeout_s > 0:
            raise InvalidField("timeout_s", timeout_s, "more than 0 seconds")
        return replace(self.policy, timeout_s=timeout_s)
