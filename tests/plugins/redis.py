"""A real Redis for tests: on loopback, on a free port, without a file."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fastvideo.local.programs import find_redis
from tests.plugins.servers import ServerProcess, free_port

_START_S_MAX = 60.0


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A Redis that answers; a test may stop it and start it again."""
    folder, port = tmp_path_factory.mktemp("redis"), free_port()
    arguments = [str(find_redis()), "--port", str(port), "--bind", "127.0.0.1"]
    arguments += ["--save", "", "--dir", str(folder)]
    server = ServerProcess(arguments, port, folder / "log", signal.SIGTERM)
    try:
        server.start()
        wait_for_redis(port)
        yield server
    finally:
        server.stop()


def redis_address(server: ServerProcess) -> str:
    """Its URL."""
    return f"redis://127.0.0.1:{server.port}/0"


def wait_for_redis(port: int) -> None:
    """Return once it answers; fail when it does not in time."""
    deadline_s = time.monotonic() + _START_S_MAX
    with redis.Redis(port=port) as client:
        while time.monotonic() < deadline_s:
            try:
                client.ping()
            except (redis.ConnectionError, redis.TimeoutError):
                time.sleep(0.02)
                continue
            return
    raise AssertionError(f"Redis did not answer within {_START_S_MAX} s")


class OwnRedis:
    """A Redis of one test alone, to be killed, wiped or paused."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        arguments = [str(find_redis()), "--port", str(port), "--bind", "127.0.0.1"]
        arguments += ["--save", "", "--dir", str(folder)]
        self.process = ServerProcess(arguments, port, folder / "redis.log", signal.SIGTERM)
        self.url = f"redis://127.0.0.1:{port}/0"

    def start(self) -> None:
        """Start it, empty, and wait until it answers."""
        self.process.start()
        wait_for_redis(self.process.port)

    def wipe(self) -> None:
        """Delete all that it has."""
        with redis.Redis(port=self.process.port) as client:
            client.flushall()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    """A Redis of this test alone; it runs."""
    server = OwnRedis(tmp_path)
    try:
        server.start()
        yield server
    finally:
        server.process.kill()
