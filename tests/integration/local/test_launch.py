"""The stack as a program finds it or starts it: `ensure_running` and `find_running`."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2

from fastvideo.local import ensure_running, find_running
from fastvideo.local.errors import PartFailed
from fastvideo.local.folder import DataFolder
from fastvideo.local.launch import running_state
from fastvideo.local.lock import holder
from fastvideo.local.state import StackState
from tests.integration.local.conftest import Stack


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch, stack: Stack) -> None:
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)


def restarts(stack: Stack) -> int:
    """How often its worker was started again."""
    state = running_state(DataFolder(stack.data))
    assert state is not None
    return next(part.restarts for part in state.parts if part.name == "worker-1")


def serves(address: str) -> bool:
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        answer = check(health_pb2.HealthCheckRequest(), timeout=60)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def test_it_is_started_once_and_then_found(stack: Stack) -> None:
    told: list[StackState] = []
    assert find_running(stack.data) is None

    started = ensure_running(stack.data, told.append)

    assert serves(started.gateway)
    assert told[-1].ready
    assert not told[0].ready
    assert find_running(stack.data) == ensure_running(stack.data) == find_running() == started
    assert started.data == stack.data
    # A part that dies is started again meanwhile; the stack is there all the while.
    (worker,) = [part for part in told[-1].parts if part.name == "worker-1"]
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30.0
    while restarts(stack) == 0:
        assert find_running(stack.data) == started
        assert time.monotonic() < deadline, "the death is not noticed"
        time.sleep(0.005)
    assert find_running(stack.data) == started
    stack.down()
    assert find_running(stack.data) is None


@pytest.mark.slow
def test_two_at_once_share_one_stack(stack: Stack) -> None:
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(ensure_running, [stack.data, stack.data])

    assert first == second
    assert serves(first.gateway)


def test_what_hinders_the_start_is_raised_outside(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_FAILS", "artifacts")

    with pytest.raises(PartFailed) as raised:
        ensure_running(stack.data)

    assert raised.value.subject == "artifacts"
    assert raised.value.attributes["log"] == str(DataFolder(stack.data).log("artifacts"))
    assert "told to fail" in raised.value.attributes["tail"]
    assert find_running(stack.data) is None
    assert os.environ["FASTVIDEO_DATA"] == str(stack.data)


def test_ctrl_c_while_it_starts_leaves_nothing_running(stack: Stack) -> None:
    def interrupt(_: StackState) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_running(stack.data, interrupt)

    assert holder(DataFolder(stack.data)) is None
