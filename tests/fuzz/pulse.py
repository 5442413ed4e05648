"""How long a server takes to tell its health while something else goes on.

Asked by a process of its own: in the process of the clients, whatever keeps these busy would count
as the server's.
"""

import asyncio
import http.client
import json
import select
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

EVERY_S: Final = 0.02
TIMEOUT_S: Final = 30.0


@dataclass(slots=True)
class Pulse:
    """How long each answer took, seconds; known once the block has ended."""

    took_s: list[float] = field(default_factory=list)

    @property
    def worst_s(self) -> float:
        """The longest."""
        return max(self.took_s, default=0.0)


@asynccontextmanager
async def pulse_of(address: str) -> AsyncIterator[Pulse]:
    """Ask for health again and again beside the block; it must always be 200."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, address, stdin=pipe, stdout=pipe, stderr=pipe
    )
    assert process.stdout is not None
    first = await process.stdout.readline()
    pulse = Pulse()
    try:
        yield pulse
    finally:
        # Its input ends, and so does it.
        told, complaints = await process.communicate(b"")
    assert process.returncode == 0, complaints.decode()
    pulse.took_s += [*json.loads(first), *json.loads(told)]


def _ask(address: str) -> float:
    began_s = time.perf_counter()
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/health/live")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
    finally:
        connection.close()
    return time.perf_counter() - began_s


def _tell(took_s: list[float]) -> None:
    sys.stdout.write(f"{json.dumps(took_s)}\n")
    sys.stdout.flush()


def _main(address: str) -> None:
    _tell([_ask(address)])
    took_s = []
    while not select.select([sys.stdin], [], [], EVERY_S)[0]:
        took_s.append(_ask(address))
    _tell(took_s)


if __name__ == "__main__":
    _main(sys.argv[1])
