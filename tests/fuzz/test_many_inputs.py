"""Ten thousand hostile inputs against a whole stack: nothing of it falls, swells or is silent."""

import asyncio
import logging
from collections.abc import Iterator, Mapping

import pytest

from fastvideo.api.scheduler.v1 import scheduler_pb2
from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.client import Client
from fastvideo_gateway.access.rules import METHODS
from tests.e2e.stack import Stack, running_stack
from tests.fuzz.judging import Tally
from tests.fuzz.rpcs import methods_of
from tests.fuzz.runs import http_run, memory_mib, pulse_of, rpc_run

_LOG = logging.getLogger(__name__)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

INPUTS = 10_000
WARM = 2_000
AT_ONCE = 8
# Python and gRPC keep what they once needed; beside that nothing may grow.
GROWTH_MAX = 1.05
GENEROUS_S = 10.0
# The services behind, by the part that serves them. A worker obeys whoever has the newest epoch,
# so that it is tried last.
# Loaded, so that their services are known by name.
PROTOS = (scheduler_pb2.DESCRIPTOR, worker_pb2.DESCRIPTOR)
INNER: Mapping[str, str] = {
    "artifacts": "fastvideo.artifacts.v1.ArtifactService",
    "sessions": "fastvideo.sessions.v1.SessionService",
    "scheduler-1": "fastvideo.scheduler.v1.SchedulerService",
    "worker-1": "fastvideo.worker.v1.WorkerService",
}
INNER_INPUTS = 300


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A stack of the module's own, since it is treated badly."""
    with running_stack() as running:
        yield running


def test_ten_thousand_inputs_change_nothing(stack: Stack) -> None:
    done = stack.generate("a red three", "--steps", "2")
    request_id = str(done["id"])
    ids = ("moving-digits", request_id, f"request-{request_id}", "default", "0")
    public = methods_of(*sorted({name.split("/")[1] for name in METHODS}))
    http = stack.address("gateway-http")

    async def run(numbers: range) -> tuple[Tally, Tally, float]:
        half = (numbers.stop - numbers.start) // 2
        async with pulse_of(http) as pulse:
            calls, asks = await asyncio.gather(
                rpc_run(stack.gateway, public, numbers[:half], ids, at_once=AT_ONCE // 2),
                http_run(http, numbers[half:], ids, at_once=AT_ONCE // 2),
            )
        return calls, asks, pulse.worst_s

    gateway = stack.pid("gateway")
    for tally in asyncio.run(run(range(INPUTS, INPUTS + WARM)))[:2]:
        tally.check()
    before = memory_mib(gateway)
    calls, asks, worst_s = asyncio.run(run(range(INPUTS)))
    after = memory_mib(gateway)
    calls.check()
    asks.check()
    assert stack.pid("gateway") == gateway
    assert after < GROWTH_MAX * before, f"{before:.1f} MiB grew to {after:.1f}"
    assert worst_s < GENEROUS_S
    _LOG.info("memory %.1f to %.1f MiB, health within %.0f ms", before, after, 1_000 * worst_s)
    _LOG.info("answers: %s, %s", dict(calls.codes), dict(asks.codes))
    # And it works as before.
    with Client(stack.gateway) as client:
        assert client.get(request_id).status == "completed"
    assert stack.generate("a red three", "--steps", "2", "--seed", "7")["status"] == "completed"


def test_services_behind_are_as_stubborn(stack: Stack) -> None:
    for part, service in INNER.items():
        pid = stack.pid(part)
        ids = ("moving-digits", part, "default")
        run = rpc_run(stack.address(part), methods_of(service), range(INNER_INPUTS), ids, at_once=4)
        tally = asyncio.run(run)
        tally.check()
        assert stack.pid(part) == pid
