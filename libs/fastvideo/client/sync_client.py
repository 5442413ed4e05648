"""The client for code without asyncio: notebooks, scripts, threads."""

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from opentelemetry.trace import SpanKind

from fastvideo.client.async_client import AsyncClient
from fastvideo.client.calls import CallPolicy, check_address, check_timeout, closed_meanwhile
from fastvideo.client.ending import require_completed, too_late
from fastvideo.client.generation import Generation
from fastvideo.client.keys import SyncKeyClient
from fastvideo.client.notebook import in_notebook
from fastvideo.client.submission import check_names, keywords
from fastvideo.client.sync_event_log import SyncLogClient
from fastvideo.client.sync_session import Session
from fastvideo.client.waiting import shows_waiting
from fastvideo.errors import DeadlineExceeded, FailedPrecondition, FastVideoError
from fastvideo.events.types import Event
from fastvideo.rpc.tls import ClientTls
from fastvideo.scheduling.traces import BehaviorRecorded
from fastvideo.telemetry import tracing

P = ParamSpec("P")
T = TypeVar("T")


def _waiting(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Client", P], T]:
    """The method of `AsyncClient` with its name, arguments and words, waiting for its answer."""

    def wait(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._client, *args, **kwargs))

    functools.update_wrapper(wait, method)
    return wait


class Client:
    """`AsyncClient` behind a thread with an event loop of its own; its methods wait.

    Works where an event loop runs already, as in notebooks, and from any number of threads at a
    time. Callbacks of `wait` and `generate` are called in the thread that waits; `replay` calls
    its own in the client's thread, which may not call the client. After a fork, make another:
    this one refuses with FailedPrecondition.
    """

    def __init__(
        self,
        address: str,
        *,
        api_key: str = "",
        tls: ClientTls | None = None,
        policy: CallPolicy | None = None,
    ) -> None:
        check_address(address)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="fastvideo-client", daemon=True
        )
        self._thread.start()
        # Reentrant: an iteration that nobody holds any more may be ended at any moment.
        self._closing = threading.RLock()
        self._client = self._submit(_open(address, api_key, tls, policy))
        self.log = SyncLogClient(self._run, self._client.log)
        self.keys = SyncKeyClient(self._run, self._client.keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and end the thread; a second time does nothing.

        Calls that wait in other threads raise Cancelled.
        """
        if self._client._calls.forked:
            return
        with self._closing:
            if self._loop.is_closed():
                return
            self._submit(_close(self._client))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    submit = _waiting(AsyncClient.submit)
    get = _waiting(AsyncClient.get)
    list = _waiting(AsyncClient.list)
    cancel = _waiting(AsyncClient.cancel)
    delete = _waiting(AsyncClient.delete)
    show = _waiting(AsyncClient.show)

    explain = _waiting(AsyncClient.explain)
    replay = _waiting(AsyncClient.replay)
    logged_run = _waiting(AsyncClient.logged_run)
    record_parity = _waiting(AsyncClient.record_parity)

    upload = _waiting(AsyncClient.upload)
    read_artifact = _waiting(AsyncClient.read_artifact)
    save_artifact = _waiting(AsyncClient.save_artifact)

    models = _waiting(AsyncClient.models)
    describe_model = _waiting(AsyncClient.describe_model)
    deployment = _waiting(AsyncClient.deployment)
    batch = _waiting(AsyncClient.batch)

    create_session = _waiting(AsyncClient.create_session)
    get_session = _waiting(AsyncClient.get_session)
    list_sessions = _waiting(AsyncClient.list_sessions)
    push_text = _waiting(AsyncClient.push_text)
    close_session = _waiting(AsyncClient.close_session)

    def session(self, session_id: str = "", **options: Any) -> Session:
        """A session as a context; see `AsyncClient.session`."""
        return Session(self, session_id, options)

    def watch(self, request_id: str, *, after_sequence: int = 0) -> Iterator[Event]:
        """A request's events, ending with the terminal one; see `AsyncClient.watch`."""
        return self._each(lambda: self._client.watch(request_id, after_sequence=after_sequence))

    def behaviors(
        self, where: Mapping[str, str] | None = None, *, limit: int | None = None
    ) -> Iterator[BehaviorRecorded]:
        """What policies did, newest first; see `AsyncClient.behaviors`."""
        return self._each(lambda: self._client.behaviors(where, limit=limit))

    def wait(
        self,
        request_id: str,
        *,
        timeout_s: float | None = None,
        on_event: Callable[[Event], None] | None = None,
        progress: bool | None = None,
        cancel_when_left: bool = False,
    ) -> Generation:
        """The request once it has ended; see `AsyncClient.wait`. Ctrl-C leaves it running, too,
        unless `cancel_when_left`."""
        check_timeout(timeout_s)
        show = shows_waiting(progress)
        try:
            for event in self._watch_within(request_id, timeout_s):
                show(event)
                if on_event is not None:
                    on_event(event)
        except (KeyboardInterrupt, DeadlineExceeded):
            if cancel_when_left:
                self._abandon(request_id)
            raise
        ended = self.get(request_id)
        return self.show(ended) if in_notebook() else ended

    def generate(
        self,
        prompt: str,
        *,
        timeout_s: float | None = None,
        on_event: Callable[[Event], None] | None = None,
        progress: bool | None = None,
        cancel_when_left: bool = False,
        **options: Any,
    ) -> Generation:
        """Submit and wait, in one trace; see `AsyncClient.generate`."""
        check_timeout(timeout_s)
        check_names(options, keywords(self.submit, self.generate))
        with tracing.span("fastvideo.generate", kind=SpanKind.CLIENT):
            submitting = self._begin(self._client.submit(prompt, **options))
            submitted = self._made(submitting) if cancel_when_left else _result(submitting)
            ended = self.wait(
                submitted.request_id,
                timeout_s=timeout_s,
                on_event=on_event,
                progress=progress,
                cancel_when_left=cancel_when_left,
            )
        require_completed(ended)
        return ended

    def _watch_within(self, request_id: str, timeout_s: float | None) -> Iterator[Event]:
        try:
            yield from self._each(lambda: self._client.watch(request_id), timeout_s)
        except TimeoutError as error:
            raise too_late(request_id, timeout_s) from error

    def _made(self, submitting: Future[Generation]) -> Generation:
        """What a submit gives; Ctrl-C meanwhile takes along what it made, once it is known."""
        try:
            return submitting.result()
        except CancelledError:
            raise closed_meanwhile() from None
        except KeyboardInterrupt:
            # The submit is not cut: whether it was stored could not be told.
            with suppress(FastVideoError, CancelledError):
                self._abandon(submitting.result().request_id)
            raise

    def _abandon(self, request_id: str) -> None:
        try:
            self.cancel(request_id, reason="nobody waits for it any more")
        except FastVideoError:
            return  # Whoever leaves is told why it left.

    def _each(
        self, begin: Callable[[], AsyncGenerator[T, None]], timeout_s: float | None = None
    ) -> Iterator[T]:
        items = self._run(_begin(begin))
        deadline = None if timeout_s is None else self._loop.time() + timeout_s
        try:
            while (item := self._run(_next(items, deadline))) is not None:
                yield item
        finally:
            # A client that was closed meanwhile has ended them.
            if not self._client._calls.closed:
                self._run(items.aclose())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of what runs in the client's thread. Raises as `_begin` does."""
        return _result(self._begin(work))

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it in the client's thread. Raises FailedPrecondition for a client that cannot be
        used here."""
        try:
            self._check()
            # Not while the client's thread ends: nobody would answer.
            with self._closing:
                self._check()
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        except FailedPrecondition:
            work.close()
            raise

    def _submit(self, work: Coroutine[Any, Any, T]) -> T:
        return _result(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _check(self) -> None:
        calls = self._client._calls
        if calls.closed or calls.forked:
            calls.check()
        if threading.current_thread() is self._thread:
            raise FailedPrecondition(
                "a callback that runs in the client's thread cannot call the client",
                reason="CALLED_FROM_CALLBACK",
                subject="client",
            )


def _result(future: Future[T]) -> T:
    try:
        return future.result()
    except CancelledError:
        raise closed_meanwhile() from None
    except BaseException:  # Ctrl-C lands here, while the work is still going on.
        future.cancel()
        raise


async def _open(
    address: str, api_key: str, tls: ClientTls | None, policy: CallPolicy | None
) -> AsyncClient:
    """A channel belongs to the loop that it is made in."""
    return AsyncClient(address, api_key=api_key, tls=tls, policy=policy)


async def _close(client: AsyncClient) -> None:
    """Close, and see every other task of the loop to its end."""
    await client.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _begin(begin: Callable[[], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """An iteration belongs to the loop that it is begun in."""
    return begin()


async def _next(items: AsyncGenerator[T, None], deadline: float | None) -> T | None:
    async with asyncio.timeout_at(deadline):
        return await anext(items, None)
