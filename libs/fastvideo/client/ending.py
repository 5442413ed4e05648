"""How a wait for a request ends, and what its end means to whoever asked for it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from fastvideo.client.calls import check_timeout
from fastvideo.client.generation import ENDED, Generation
from fastvideo.client.waiting import shows_waiting
from fastvideo.errors import Cancelled, DeadlineExceeded, FastVideoError
from fastvideo.events.types import Event
from fastvideo.requests.types import RequestState, RequestStatus


async def waited(
    watched: AsyncGenerator[Event, None],
    request_id: str,
    timeout_s: float | None,
    on_event: Callable[[Event], None] | None,
    progress: bool | None,
) -> None:
    """Follow a request to its end. Raises DeadlineExceeded naming it after `timeout_s` seconds."""
    show = shows_waiting(progress)
    async with within(timeout_s, request_id), aclosing(watched) as events:
        async for event in events:
            show(event)
            if on_event is not None:
                on_event(event)


@asynccontextmanager
async def within(timeout_s: float | None, subject: str) -> AsyncIterator[None]:
    """Raise DeadlineExceeded naming the subject when the block takes longer; None never does."""
    check_timeout(timeout_s)
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        # Another's TimeoutError, such as a callback's, is not ours to tell.
        if not limit.expired():
            raise
        raise too_late(subject, timeout_s) from error


async def abandon(cancelling: Awaitable[Any]) -> None:
    """Cancel what nobody waits for, even while the waiting task is being cancelled."""
    # Whoever leaves is told why it left, not that the server could not be told.
    with suppress(FastVideoError):
        await asyncio.shield(asyncio.ensure_future(cancelling))


async def made(
    submitting: Awaitable[Generation], cancel: Callable[[str], Awaitable[Any]]
) -> Generation:
    """What a submit gives. Who is cancelled meanwhile takes along what it made, once it is known.

    The submit is not cut: whether it was stored could not be told.
    """
    answer = asyncio.ensure_future(submitting)

    async def take_along() -> None:
        await cancel((await answer).request_id)

    try:
        return await asyncio.shield(answer)
    except asyncio.CancelledError:
        await abandon(take_along())
        raise


def too_late(subject: str, timeout_s: float | None) -> DeadlineExceeded:
    """The error of a wait that was not long enough."""
    return DeadlineExceeded(
        f"{subject} was waited for for {timeout_s:g} s", reason="WAIT_TIMEOUT", subject=subject
    )


def require_completed(state: RequestState) -> None:
    """Raise what a request failed of, or Cancelled; nothing when it completed."""
    if state.status is RequestStatus.FAILED and state.error is not None:
        raise FastVideoError(
            state.error.message,
            reason=state.error.reason,
            subject=state.error.subject,
            attributes=state.error.attributes,
        )
    if state.status is RequestStatus.CANCELLED:
        raise Cancelled(
            f"request {state.spec.request_id} was cancelled", subject=state.spec.request_id
        )
    if state.status not in ENDED:
        raise FastVideoError(f"request {state.spec.request_id} has not ended")
