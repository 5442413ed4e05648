"""Whether an answer is one that a hostile input may get."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc

from fastvideo.rpc.errors import from_rpc_error
from tests.fuzz.rpcs import Rpc

# The caller's fault, or a limit. Everything else says that the server is at fault.
GOOD_CODES = frozenset(
    {
        grpc.StatusCode.OK,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
    }
)
# The server waits for what comes next; nothing is wrong with that.
OPEN = "OPEN"
# What gRPC's own client says when the answer came before all messages were sent; it lost it.
LEFT_OFF = "Internal error from Core"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to."""

    code: str
    # What is wrong with that; empty when nothing is.
    fault: str = ""


@dataclass(slots=True)
class Tally:
    """Outcomes of a run, and what to do about the bad ones."""

    seed: int
    codes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, number: int, name: str, outcome: Outcome, sent: Sequence[bytes]) -> None:
        """Count an outcome; of a fault, keep what is needed to see it again."""
        self.codes[outcome.code] += 1
        if outcome.fault:
            shown = [one[:200].hex() for one in sent[:3]]
            self.faults.append(
                f"seed {self.seed} number {number}: {name}: {outcome.fault}; sent {shown}"
            )

    def check(self) -> None:
        """Fail with the first of the faults."""
        told = "\n".join(self.faults[:20])
        assert not self.faults, f"{len(self.faults)} faults, {dict(self.codes)}:\n{told}"


def refused(error: grpc.aio.AioRpcError) -> Outcome:
    """The outcome of a call that ended with an error."""
    code = error.code()
    if error.details() == LEFT_OFF:
        return Outcome("LEFT_OFF")
    if code not in GOOD_CODES:
        return Outcome(code.name, f"{code.name}: {error.details()}")
    if code is grpc.StatusCode.INVALID_ARGUMENT and not from_rpc_error(error).subject:
        return Outcome(code.name, f"names no field: {error.details()}")
    return Outcome(code.name)


async def made(channel: grpc.aio.Channel, rpc: Rpc, silence_s: float = 0.3) -> Outcome:
    """Make a call. A stream that says nothing for a while, or much, is left."""
    make = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[rpc.streams_in, rpc.streams_out]
    call = make(rpc.method)(iter(rpc.messages) if rpc.streams_in else rpc.messages[0], timeout=60)  # type: ignore[operator]
    try:
        if not rpc.streams_out:
            await call
            return Outcome("OK")
        return await _read(call, silence_s)
    except grpc.aio.AioRpcError as error:
        return refused(error)
    finally:
        call.cancel()


async def _read(call: "grpc.aio.UnaryStreamCall[bytes, bytes]", silence_s: float) -> Outcome:
    for _ in range(50):
        try:
            async with asyncio.timeout(silence_s):
                if await call.read() is grpc.aio.EOF:
                    break
        except TimeoutError:
            return Outcome(OPEN)
    else:
        return Outcome(OPEN)
    return Outcome((await call.code()).name)
