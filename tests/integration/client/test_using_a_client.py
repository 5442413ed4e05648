"""What an application does with a client: many calls, bounds, leaving, closing, threads, forks."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fastvideo.client import AsyncClient, CallPolicy, Client
from fastvideo.errors import (
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    FastVideoError,
    InvalidField,
)
from fastvideo.requests.types import RequestStatus
from tests.integration.client.scripted_gateway import Script, history, serve
from tests.plugins.waiting import eventually

POLICY = CallPolicy(timeout_s=60.0, silence_s_max=60.0, retry_first_s=0.01, retry_s_max=0.05)
UNENDED = history(8)[:-1]


@asynccontextmanager
async def client_of(script: Script) -> AsyncIterator[AsyncClient]:
    async with serve(script) as server, AsyncClient(server.address, policy=POLICY) as client:
        yield client


def reason_of(caught: pytest.ExceptionInfo[FastVideoError]) -> str:
    return caught.value.reason


async def test_one_client_makes_many_calls_at_a_time() -> None:
    async with client_of(Script(slow_s=0.2)) as client:
        states = await asyncio.gather(*(client.get("req_1") for _ in range(300)))
        waits = await asyncio.gather(*(client.wait("req_1") for _ in range(50)))
    assert {state.status for state in (*states, *waits)} == {RequestStatus.COMPLETED}


async def test_a_call_has_a_bound_of_its_own() -> None:
    async with client_of(Script(slow_s=60.0)) as client:
        with pytest.raises(DeadlineExceeded, match=r"no answer within 0\.1 s") as late:
            await client.get("req_1", timeout_s=0.1)
        with pytest.raises(InvalidField) as caught:
            await client.get("req_1", timeout_s=0)
    assert late.value.subject == client.address
    assert caught.value.field == "timeout_s"


async def test_a_bound_that_is_none_is_refused_before_anything_is_asked() -> None:
    script = Script()

    def use(client: Client) -> None:
        with pytest.raises(InvalidField, match="timeout_s"):
            client.generate("a red three", timeout_s=0)

    await in_thread(script, use)
    async with client_of(script) as client:
        with pytest.raises(InvalidField, match="timeout_s"):
            await client.generate("a red three", timeout_s=0)
    assert script.submits == []


@pytest.mark.parametrize("cancel", [False, True])
async def test_a_wait_that_took_too_long_leaves_the_request_alone_unless_told(
    cancel: bool,
) -> None:
    script = Script(payloads=UNENDED, holds=True)
    async with client_of(script) as client:
        with pytest.raises(DeadlineExceeded) as caught:
            await client.wait("req_1", timeout_s=0.2, cancel_when_left=cancel)
        with pytest.raises(InvalidField):
            await client.wait("req_1", timeout_s=-1)
    assert (caught.value.reason, caught.value.subject) == ("WAIT_TIMEOUT", "req_1")
    assert script.cancelled == (["req_1"] if cancel else [])


@pytest.mark.parametrize("cancel", [False, True])
async def test_a_task_that_is_cancelled_leaves_the_request_alone_unless_told(
    cancel: bool,
) -> None:
    script = Script(payloads=UNENDED, holds=True)
    seen: list[int] = []
    async with client_of(script) as client:
        waiting = client.wait(
            "req_1", on_event=lambda e: seen.append(e.stream_version), cancel_when_left=cancel
        )
        task = asyncio.create_task(waiting)

        async def all_seen() -> bool:
            return len(seen) == len(UNENDED)

        await eventually(all_seen)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The client is as good as before.
        assert (await client.get("req_1")).request_id == "req_1"
    assert script.cancelled == (["req_1"] if cancel else [])


@pytest.mark.parametrize("cancel", [False, True])
async def test_who_leaves_while_a_submit_is_answered_takes_the_request_along_only_when_told(
    cancel: bool,
) -> None:
    script = Script(answers=asyncio.Event())

    async def stored() -> bool:
        return bool(script.submits)

    async with client_of(script) as client:
        task = asyncio.create_task(client.generate("a red three", cancel_when_left=cancel))
        await eventually(stored)
        task.cancel()
        await asyncio.sleep(0)
        script.answers.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert script.cancelled == (["req_1"] if cancel else [])


async def test_ctrl_c_while_a_submit_is_answered_takes_the_request_along() -> None:
    script = Script()

    class Interrupted:
        """An answer, after a key."""

        def __init__(self, future: Future[Any]) -> None:
            self._future = future
            self._pressed = False

        def result(self) -> Any:
            if self._pressed:
                return self._future.result()
            self._pressed = True
            raise KeyboardInterrupt

    def use(client: Client) -> None:
        begin, began = client._begin, iter([Interrupted])
        client._begin = lambda work: next(began, lambda f: f)(begin(work))  # type: ignore
        with pytest.raises(KeyboardInterrupt):
            client.generate("a red three", cancel_when_left=True)

    await in_thread(script, use)
    assert (len(script.submits), script.cancelled) == (1, ["req_1"])


async def test_what_a_callback_raises_ends_the_wait_as_it_is() -> None:
    def complain(event: object) -> None:
        raise TimeoutError("mine")

    async with client_of(Script()) as client:
        with pytest.raises(TimeoutError, match="mine"):
            await client.wait("req_1", timeout_s=30, on_event=complain)


async def test_a_delete_is_tried_again_while_the_server_is_away() -> None:
    script = Script(unavailable=2)
    async with client_of(script) as client:
        await client.delete("req_1")
    assert script.deleted == ["req_1"] * 3


async def test_a_closed_client_refuses_by_name_and_closes_twice() -> None:
    async with serve(Script()) as server:
        client = AsyncClient(server.address)
        await client.get("req_1")
        watching = client.watch("req_1")
        await client.close()
        await client.close()
        for call in (
            client.get("req_1"),
            client.read_artifact("art_1"),
            client.explain("req_1"),
            client.list_sessions(),
            client.wait("req_1"),
            anext(watching),
            anext(client.log.read_stream("request-req_1")),
        ):
            with pytest.raises(FailedPrecondition) as caught:
                await call
            assert reason_of(caught) == "CLIENT_CLOSED"


async def test_closing_ends_what_runs_by_name_and_cancels_nobody() -> None:
    script = Script(payloads=UNENDED, holds=True, slow_s=60.0)
    async with serve(script) as server:
        client = AsyncClient(server.address, policy=POLICY)
        began = asyncio.Event()
        running = [
            asyncio.create_task(client.wait("req_1", on_event=lambda _: began.set())),
            asyncio.create_task(client.get("req_1")),
        ]
        await asyncio.wait_for(began.wait(), 30.0)
        await client.close()
        for task in running:
            with pytest.raises(Cancelled) as caught:
                await task
            assert reason_of(caught) == "CLIENT_CLOSED"
    assert script.cancelled == []


async def test_a_client_belongs_to_the_loop_of_its_first_call() -> None:
    async with client_of(Script()) as client:
        await client.get("req_1")

        def elsewhere() -> None:
            with pytest.raises(FailedPrecondition) as caught:
                asyncio.run(client.get("req_1"))
            assert reason_of(caught) == "OTHER_LOOP"

        await asyncio.to_thread(elsewhere)


async def in_thread(script: Script, use: Callable[[Client], None]) -> None:
    """The synchronous client in a thread, beside the server's event loop."""
    async with serve(script) as server:

        def run() -> None:
            with Client(server.address, policy=POLICY) as client:
                use(client)

        await asyncio.to_thread(run)


async def test_the_synchronous_client_works_inside_a_running_event_loop() -> None:
    def use(client: Client) -> None:
        async def cell() -> RequestStatus:
            return client.generate("a red three").status

        assert asyncio.run(cell()) is RequestStatus.COMPLETED

    await in_thread(Script(), use)


async def test_many_threads_share_a_synchronous_client() -> None:
    def use(client: Client) -> None:
        found: list[RequestStatus] = []

        def work() -> None:
            found.extend(client.wait("req_1").status for _ in range(5))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [RequestStatus.COMPLETED] * 40

    await in_thread(Script(), use)


async def test_a_callback_may_call_the_synchronous_client() -> None:
    def use(client: Client) -> None:
        told: list[str] = []
        client.wait("req_1", on_event=lambda _: told.append(client.get("req_1").request_id))
        assert told == ["req_1"] * 10

    await in_thread(Script(), use)


async def test_a_synchronous_wait_has_a_bound_and_cancels_only_when_told() -> None:
    script = Script(payloads=UNENDED, holds=True)

    def use(client: Client) -> None:
        for cancel in (False, True):
            with pytest.raises(DeadlineExceeded) as caught:
                client.wait("req_1", timeout_s=0.2, cancel_when_left=cancel)
            assert reason_of(caught) == "WAIT_TIMEOUT"
            assert len(script.cancelled) == int(cancel)

    await in_thread(script, use)


async def test_closing_ends_the_calls_of_other_threads() -> None:
    raised: list[FastVideoError] = []

    def use(client: Client) -> None:
        watching = threading.Event()

        def watch() -> None:
            try:
                client.wait("req_1", on_event=lambda _: watching.set())
            except FastVideoError as error:
                raised.append(error)

        thread = threading.Thread(target=watch)
        thread.start()
        assert watching.wait(30)
        client.close()
        thread.join(60)
        assert not thread.is_alive()
        with pytest.raises(FailedPrecondition) as caught:
            client.get("req_1")
        assert reason_of(caught) == "CLIENT_CLOSED"
        client.close()

    await in_thread(Script(payloads=UNENDED, holds=True), use)
    (error,) = raised
    assert isinstance(error, Cancelled | FailedPrecondition)
    assert error.reason in ("CLIENT_CLOSED", "CANCELLED")


async def test_a_call_that_begins_while_the_client_is_closed_is_refused() -> None:
    def use(client: Client) -> None:
        check = client._check

        def check_then_close() -> None:
            """Another thread closes right after the call was found to be right."""
            check()
            client._check = check  # type: ignore[method-assign]
            closing = threading.Thread(target=client.close)
            closing.start()
            closing.join(60)

        client._check = check_then_close  # type: ignore[method-assign]
        with pytest.raises(FailedPrecondition) as caught:
            client.get("req_1")
        assert reason_of(caught) == "CLIENT_CLOSED"

    await in_thread(Script(), use)


async def test_a_forked_child_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def use(client: Client) -> None:
        client.get("req_1")
        with monkeypatch.context() as patched:
            # What a child sees of itself; a real fork beside gRPC's threads is not for tests.
            patched.setattr(os, "getpid", lambda: -1)
            for call in (client.get, client.wait):
                with pytest.raises(FailedPrecondition) as caught:
                    call("req_1")
                assert reason_of(caught) == "FORKED"
            client.close()
        assert client.get("req_1").request_id == "req_1"

    await in_thread(Script(), use)
