"""The operations on a worker's memory, as tests call them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.rpc.errors import from_rpc_error

IDLE_S_MAX = 60.0
# The worker's limits are what is tested, not this client's.
UNLIMITED = [("grpc.max_send_message_length", -1)]


class Calls:
    """The operations on the memory of one worker."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    async def call(self, name: str, **fields: Any) -> Any:
        request = getattr(worker_pb2, f"{name}Request")(**fields)
        try:
            return await getattr(self._stub, name)(request, timeout=60)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def until_idle(self) -> None:
        """Wait until the worker has let go of what it was told to release."""
        deadline_s = time.monotonic() + IDLE_S_MAX
        while (reserved := (await self.call("Health")).memory_reserved_bytes["activations"]) > 0:
            assert time.monotonic() < deadline_s, f"{reserved} bytes are still reserved"
            await asyncio.sleep(0.02)

    async def memory(self, tag: str) -> int:
        health = await self.call("Health")
        found: int = health.memory_bytes[tag]
        return found


@asynccontextmanager
async def calls_of(worker: Any) -> AsyncIterator[Calls]:
    async with grpc.aio.insecure_channel(worker.address, options=UNLIMITED) as channel:
        yield Calls(worker_pb2_grpc.WorkerServiceStub(channel))


def stop(worker: Any) -> None:
    worker.process.terminate()
    assert worker.process.wait(30) == 0
