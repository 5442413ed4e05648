"""Calls: a deadline over all their tries, typed errors, and retries of what may be tried again.

`Calls` is what all calls of one client share: where they go, how patient they are, and whether
they may.
"""

import asyncio
import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

import grpc

from fastvideo.errors import (
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidField,
    Unavailable,
)
from fastvideo.rpc import handshakes
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.tls import ClientTls

CLIENT_CLOSED: Final = "CLIENT_CLOSED"

# What gRPC says of a call whose time is up; it names neither the server nor the time.
GRPC_DEADLINE: Final = "Deadline Exceeded"

# Who is not there is found out sooner (`rpc.channel`): a stream that lasted so long was served.
SERVED_S: Final = 20.0

# Without a port gRPC would take 443 and wait for somebody to answer there.
_ADDRESS: Final = re.compile(
    r"(\[[0-9a-fA-F:.%]+\]|[^\s/:\[\]]+):[0-9]{1,5}|(dns|ipv4|ipv6|unix|xds):\S+"
)

RequestT = TypeVar("RequestT")
RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
ResponseT = TypeVar("ResponseT")
ResponseT_co = TypeVar("ResponseT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """How long calls take and how patient they are; seconds."""

    # One call, all tries together.
    timeout_s: float = 15.0
    # How long a stream (watch, download) may go without its server before it gives up.
    silence_s_max: float = 60.0
    retry_first_s: float = 0.05
    retry_s_max: float = 1.0


class Backoff:
    """Growing pauses between tries."""

    def __init__(self, policy: CallPolicy) -> None:
        self._policy = policy
        self._pause_s = policy.retry_first_s

    async def pause(self) -> None:
        """Wait, the next time longer; not all clients come back at the same moment."""
        await asyncio.sleep(self._pause_s * random.uniform(0.5, 1.0))
        self._pause_s = min(self._pause_s * 2, self._policy.retry_s_max)

    def reset(self) -> None:
        """Begin with short pauses again, after progress."""
        self._pause_s = self._policy.retry_first_s


class Silence:
    """How long a stream goes without its server.

    One that is open may have nothing to tell for as long as it likes, and its reader may be busy.
    """

    def __init__(self, policy: CallPolicy) -> None:
        self._s_max = policy.silence_s_max
        self._since_s = self._began_s = time.monotonic()

    def begin(self) -> None:
        """A stretch of the stream begins."""
        self._began_s = time.monotonic()

    def heard(self) -> None:
        """It told something."""
        self._since_s = time.monotonic()

    def is_over(self) -> bool:
        """Whether nobody answered for too long, now that the stretch has ended."""
        now_s = time.monotonic()
        if now_s - self._began_s > SERVED_S:
            self._since_s = now_s
        return now_s - self._since_s > self._s_max


@contextmanager
def typed_errors() -> Iterator[None]:
    """Turn gRPC's errors into FastVideo's."""
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error
    except grpc.aio.UsageError as error:
        raise client_closed() from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Nobody cancelled the task: gRPC ends so what runs on a channel that is closed.
        raise closed_meanwhile() from error


def check_address(address: str) -> None:
    """Raise InvalidField for what is neither "host:port" nor one of gRPC's own names."""
    if not isinstance(address, str) or _ADDRESS.fullmatch(address) is None:
        raise InvalidField(
            "address", address, '"host:port" of a gateway\'s gRPC, such as "127.0.0.1:50051"'
        )


def check_timeout(timeout_s: float | None) -> None:
    """Raise InvalidField for a time that is none."""
    if timeout_s is not None and not (isinstance(timeout_s, int | float) and timeout_s > 0):
        raise InvalidField("timeout_s", timeout_s, "more than 0 seconds, or None")


def client_closed() -> FailedPrecondition:
    """The error of a call of a client that was closed before."""
    return FailedPrecondition(
        "the client is closed; make another", reason=CLIENT_CLOSED, subject="client"
    )


def closed_meanwhile() -> Cancelled:
    """The error of a call that was under way when its client was closed."""
    return Cancelled("the client was closed meanwhile", reason=CLIENT_CLOSED, subject="client")


Why = Callable[[], Awaitable[Unavailable | None]]
"""Finds out why a server ends connections; None when it cannot be seen."""


class Method(Protocol[RequestT_contra, ResponseT_co]):
    """One call with one answer."""

    def __call__(
        self, request: RequestT_contra, /, *, timeout: float
    ) -> Awaitable[ResponseT_co]: ...


async def call(
    method: Method[RequestT, ResponseT],
    request: RequestT,
    policy: CallPolicy,
    why: Why | None = None,
) -> ResponseT:
    """The answer. Raises a FastVideoError; Unavailable once the policy's time is up.

    Where no TLS connection comes about there is no waiting for a better time. gRPC does not
    always tell, so `why` is asked once when the server ends the connection.
    """
    deadline = time.monotonic() + policy.timeout_s
    backoff = Backoff(policy)
    away: Unavailable | None = None
    while True:
        left_s = deadline - time.monotonic()
        try:
            with typed_errors():
                return await method(request, timeout=max(left_s, 0.001))
        except DeadlineExceeded as error:
            # Of a last try with too little time; that nobody answered before is why.
            if away is None:
                raise
            raise away from error
        except Unavailable as error:
            away = error
            if error.reason in handshakes.REASONS:
                raise
            if why is not None and handshakes.looks_closed(error.message):
                found, why = await why(), None
                if found is not None:
                    raise found from error
            if deadline - time.monotonic() < policy.retry_s_max:
                raise
        await backoff.pause()


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
            raise client_closed()
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
        policy = self.within(timeout_s)
        try:
            return await call(method, request, policy, self._why_closed)
        except Unavailable as error:
            error.subject = error.subject or self.address
            raise
        except DeadlineExceeded as error:
            if error.message != GRPC_DEADLINE:
                raise
            raise DeadlineExceeded(
                f"no answer within {policy.timeout_s:g} s", subject=self.address
            ) from error

    async def _why_closed(self) -> Unavailable | None:
        return await handshakes.try_handshake(self.address, self._tls)

    def within(self, timeout_s: float | None) -> CallPolicy:
        """The policy with another bound, if there is one. Raises InvalidField for none above 0."""
        check_timeout(timeout_s)
        if timeout_s is None:
            return self.policy
        return replace(self.policy, timeout_s=timeout_s)
