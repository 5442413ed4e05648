"""One call: a deadline over all its tries, typed errors, and retries where they are safe.

Every call of this client may be tried again: reads change nothing, a submit carries an
idempotency key, a cancel says the same thing twice, and the same file is stored once.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import grpc

from fastvideo.errors import Cancelled, FailedPrecondition, Unavailable
from fastvideo.rpc import handshakes
from fastvideo.rpc.errors import from_rpc_error

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


@contextmanager
def typed_errors() -> Iterator[None]:
    """Turn gRPC's errors into FastVideo's."""
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error
    except grpc.aio.UsageError as error:
        raise FailedPrecondition(
            "the client is closed; make another", reason="CLIENT_CLOSED", subject="client"
        ) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Nobody cancelled the task: gRPC ends so what runs on a channel that is closed.
        raise Cancelled(
            "the client was closed meanwhile", reason="CLIENT_CLOSED", subject="client"
        ) from error


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
    while True:
        left_s = deadline - time.monotonic()
        try:
            with typed_errors():
                return await method(request, timeout=max(left_s, 0.001))
        except Unavailable as error:
            if error.reason in handshakes.REASONS:
                raise
            if why is not None and handshakes.looks_closed(error.message):
                found, why = await why(), None
                if found is not None:
                    raise found from error
            if deadline - time.monotonic() < policy.retry_s_max:
                raise
        await backoff.pause()
