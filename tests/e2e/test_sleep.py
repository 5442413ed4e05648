"""A worker sleeps under a running stack: requests wait for it, and lose nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.client import Client
from fastvideo.requests.types import RequestStatus, SamplingOverrides
from tests.e2e.stack import Stack, poll

PROMPT = "a yellow two moving up"
SAMPLING = SamplingOverrides(steps=6, seed=5)
CALL_S_MAX = 120.0
WAIT_S_MAX = 120.0


@contextmanager
def worker_of(stack: Stack) -> Iterator[Callable[..., Any]]:
    with grpc.insecure_channel(stack.address("worker-1")) as channel:
        stub: Any = worker_pb2_grpc.WorkerServiceStub(channel)

        def call(name: str, **fields: Any) -> Any:
            request = getattr(worker_pb2, f"{name}Request")(**fields)
            return getattr(stub, name)(request, timeout=CALL_S_MAX)

        yield call


def is_refused(error: Any) -> bool:
    """Whether a request is there that needs what is to sleep."""
    return error.code() is grpc.StatusCode.FAILED_PRECONDITION and "requests" in error.details()


def sleep_when_idle(call: Callable[..., Any]) -> Any:
    """Sleep once nothing runs: the end of a request is told before its memory is free."""

    def ask() -> Any:
        try:
            return call("Sleep", tags=["weights"])
        except grpc.RpcError as error:
            if is_refused(error):
                return None
            raise

    return poll("the worker sleeps", ask, WAIT_S_MAX)


def test_a_request_waits_for_a_worker_that_sleeps_and_has_the_same_bits(stack: Stack) -> None:
    with Client(stack.gateway) as client, worker_of(stack) as call:
        expected = client.generate(PROMPT, sampling=SAMPLING).latents_digest
        assert sleep_when_idle(call).freed_bytes > 15_000_000
        try:
            request_id = client.submit(PROMPT, sampling=SAMPLING).spec.request_id
            health = call("Health")
            assert (health.ready, health.memory_bytes["weights"]) == (False, 0)
            assert client.get(request_id).status in (RequestStatus.ACCEPTED, RequestStatus.QUEUED)
        finally:
            call("Wake")
        ended = client.wait(request_id)
        assert ended.latents_digest == expected


def test_a_worker_that_runs_a_request_does_not_sleep(stack: Stack) -> None:
    with Client(stack.gateway) as client, worker_of(stack) as call:
        sampling = SamplingOverrides(steps=80, seed=5)
        request_id = client.submit(PROMPT, sampling=sampling).spec.request_id
        poll("its loop lives", lambda: call("Health").loops or None, WAIT_S_MAX)
        with pytest.raises(grpc.RpcError) as caught:
            call("Sleep", tags=["weights"])
        assert is_refused(caught.value)
        assert client.wait(request_id).latents_digest
