"""Ten thousand hostile inputs against a whole stack: nothing of it falls, swells or is silent."""

import asyncio
import base64
import json
import logging
import zlib
from collections.abc import Iterator, Mapping

import pytest

from fastvideo.api.scheduler.v1 import scheduler_pb2
from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.client import Client
from fastvideo_gateway.access.rules import METHODS
from tests.e2e.stack import Stack, running_stack
from tests.fuzz.judging import Tally
from tests.fuzz.pulse import Pulse, pulse_of
from tests.fuzz.rpcs import methods_of
from tests.fuzz.runs import http_run, memory_mib, rpc_run
from tests.plugins.http import call

_LOG = logging.getLogger(__name__)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

INPUTS = 10_000
# By then Python and gRPC hold what they need; from then on nothing may grow.
WARM = 5_000
AT_ONCE = 8
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
INNER_INPUTS = 200


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A stack of the module's own, since it is treated badly."""
    with running_stack() as running:
        yield running


def test_ten_thousand_inputs_change_nothing(stack: Stack) -> None:
    done = stack.generate("a red three", "--steps", "2")
    request_id = str(done["id"])
    untouched = str(stack.generate("a red three", "--steps", "2")["id"])
    ids = ("moving-digits", request_id, f"request-{request_id}", "default", "0")
    public = methods_of(*sorted({name.split("/")[1] for name in METHODS}))
    http = stack.address("gateway-http")

    async def run(numbers: range) -> tuple[Tally, Tally, Pulse]:
        half = (numbers.stop - numbers.start) // 2
        async with pulse_of(http) as pulse:
            calls, asks = await asyncio.gather(
                rpc_run(stack.gateway, public, numbers[:half], ids, at_once=AT_ONCE // 2),
                http_run(http, numbers[half:], ids, at_once=AT_ONCE // 2),
            )
        return calls, asks, pulse

    gateway = stack.pid("gateway")
    warm = asyncio.run(run(range(WARM)))
    before = memory_mib(gateway)
    late = asyncio.run(run(range(WARM, INPUTS)))
    after = memory_mib(gateway)
    took_s = sorted(warm[2].took_s + late[2].took_s)
    worst_s = took_s[-1]
    _LOG.info("memory %.1f to %.1f MiB", before, after)
    median_s, p99_s = took_s[len(took_s) // 2], took_s[len(took_s) * 99 // 100]
    told = [round(1_000 * one_s, 1) for one_s in (median_s, p99_s, worst_s)]
    _LOG.info("health %d times: median, p99, worst %s ms", len(took_s), told)
    _LOG.info("answers: %s", [dict(tally.codes) for tally in (*warm[:2], *late[:2])])
    for tally in (*warm[:2], *late[:2]):
        tally.check()
    assert stack.pid("gateway") == gateway
    assert after < GROWTH_MAX * before, f"{before:.1f} MiB grew to {after:.1f}"
    assert worst_s < GENEROUS_S
    # And it works as before.
    with Client(stack.gateway) as client:
        assert client.get(untouched).status == "completed"
    assert stack.generate("a red three", "--steps", "2", "--seed", "7")["status"] == "completed"


def test_images_that_swell_when_they_are_decoded_fail_their_request_alone(stack: Stack) -> None:
    worker = stack.pid("worker-1")
    swelling = zlib.compress(bytes(200 * 2**20))
    # Of the second, what it claims is decoded, and not one byte of the rest.
    images = {png(60_000, 60_000): 400, png(65_535, 1, swelling): 200, png(48, 48): 400}
    for data, status in images.items():
        url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        body = {"prompt": "a red three", "input_reference": {"image_url": url}}
        answer = asyncio.run(
            call(
                stack.address("gateway-http"),
                "/v1/videos/sync",
                method="POST",
                headers={"Content-Type": "application/json", "Accept": "application/json"},
                body=json.dumps(body).encode(),
            )
        )
        assert answer.status == status, answer.body
        assert status == 200 or answer.error["param"], answer.body
    assert stack.pid("worker-1") == worker


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG that claims a size, whatever its data are."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4)

    head = width.to_bytes(4) + height.to_bytes(4) + bytes((8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def test_services_behind_are_as_stubborn(stack: Stack) -> None:
    for part, service in INNER.items():
        pid = stack.pid(part)
        ids = ("moving-digits", part, "default")
        run = rpc_run(stack.address(part), methods_of(service), range(INNER_INPUTS), ids, at_once=4)
        tally = asyncio.run(run)
        tally.check()
        assert stack.pid(part) == pid
