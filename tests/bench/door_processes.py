"""The clients of `door_clients.py` and the peer of `bare_doors.py`, from the side that measures."""

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from door_clients import Door
from gateway_process import python_process, wait_for_http

from tests.plugins.servers import free_port

HERE = Path(__file__).resolve().parent
STOP_S_MAX = 10.0


def read(door: Door, clients: int, seconds: float) -> tuple[float, list[float]]:
    """Reads a second, and the seconds of each, of so many clients at once."""
    with _client({"action": "read", "clients": clients, "seconds": seconds}, door) as lines:
        told = json.loads(next(lines))
    latencies: list[float] = told["latencies"]
    return len(latencies) / told["seconds"], latencies


def queue(address: str, body: str, count: int, samples: int) -> dict[str, list[float]]:
    """Post so many videos; the seconds of posts, reads and lists once they are queued."""
    asked: dict[str, object] = {"action": "queue", "body": body, "count": count}
    with _client(asked | {"samples": samples}, Door("http", address, [])) as lines:
        told: dict[str, list[float]] = json.loads(next(lines))
    return told


@contextmanager
def watching(door: Door, streams: int) -> Iterator[Iterator[list[float]]]:
    """Streams that are open inside the block; each step gives the moments of one event."""
    with _client({"action": "watch", "streams": streams}, door) as lines:
        rounds: Iterator[list[float]] = map(json.loads, lines)
        # The event that each stream has at once.
        next(rounds)
        yield rounds


@contextmanager
def _client(asked: dict[str, object], door: Door) -> Iterator[IO[bytes]]:
    process = subprocess.Popen(
        [sys.executable, str(HERE / "door_clients.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(asked | {"door": asdict(door)}).encode() + b"\n")
        process.stdin.flush()
        yield process.stdout
    finally:
        process.kill()
        process.wait(STOP_S_MAX)
        process.stdin.close()
        process.stdout.close()


@dataclass(frozen=True)
class BareDoors:
    """Where the peer answers."""

    http: str
    grpc: str

    def reads(self, kind: str) -> Door:
        """What answers at once."""
        return self._door(kind, "/echo", "/bare/Echo")

    def streams(self, kind: str) -> Door:
        """What tells every stream of each `tell`."""
        return self._door(kind, "/stream", "/bare/Stream")

    def _door(self, kind: str, path: str, method: str) -> Door:
        if kind == "http":
            return Door(kind, self.http, [path])
        return Door(kind, self.grpc, messages([b""]), method)


@contextmanager
def bare_doors(answer_bytes: int) -> Iterator[BareDoors]:
    """The peer, with answers of a size; stopped afterwards."""
    http, grpc = free_port(), free_port()
    with python_process([str(HERE / "bare_doors.py"), *map(str, (http, grpc, answer_bytes))]):
        wait_for_http(f"http://127.0.0.1:{http}/echo")
        yield BareDoors(f"127.0.0.1:{http}", f"127.0.0.1:{grpc}")


def messages(encoded: Sequence[bytes]) -> list[str]:
    """Messages as a `Door` has them."""
    return [b64encode(one).decode() for one in encoded]
