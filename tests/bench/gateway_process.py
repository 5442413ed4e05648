"""A gateway of its own for a benchmark: a process over real servers, without the rest."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.plugins.servers import free_port

START_S_MAX = 30.0


@dataclass(frozen=True)
class RunningGateway:
    """Where it answers, and its process."""

    grpc: str
    http: str
    process: psutil.Process

    def cpu_seconds(self) -> float:
        """Processor time that it has taken."""
        return sum(self.process.cpu_times()[:2])

    def memory_bytes(self) -> int:
        """What would be free if it ended."""
        return int(self.process.memory_full_info().uss)


@contextmanager
def gateway_process(dsn: str, nats_url: str) -> Iterator[RunningGateway]:
    """A gateway that answers; nobody is behind it. It is stopped afterwards."""
    grpc, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
    environment = {
        **os.environ,
        "FASTVIDEO_LISTEN": grpc,
        "FASTVIDEO_HTTP_LISTEN": http,
        "FASTVIDEO_POSTGRES_DSN": dsn,
        "FASTVIDEO_NATS_URL": nats_url,
        # Nobody answers there, and nobody is asked.
        "FASTVIDEO_ARTIFACTS_ADDRESS": "127.0.0.1:1",
        "FASTVIDEO_SESSIONS_ADDRESS": "127.0.0.1:1",
    }
    with python_process(["-m", "fastvideo_gateway"], environment) as process:
        wait_for_http(f"http://{http}/health/live")
        yield RunningGateway(grpc, http, psutil.Process(process.pid))


@contextmanager
def python_process(
    arguments: Sequence[str], environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program that runs inside the block and is stopped afterwards."""
    process = subprocess.Popen([sys.executable, *arguments], env=environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def wait_for_http(url: str) -> None:
    """Return once a GET is answered with 200."""
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=1.0):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.05)
    raise TimeoutError(f"{url} does not answer")
