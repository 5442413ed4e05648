"""A request's events in order, from any sequence number, over any number of cuts."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastvideo import wire
from fastvideo.api.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from fastvideo.client.calls import Backoff, CallPolicy, Silence, call, typed_errors
from fastvideo.client.generation import ENDED
from fastvideo.client.submission import filled
from fastvideo.errors import CorruptLog, Unavailable
from fastvideo.events.catalog import TERMINAL, is_unknown, typed
from fastvideo.events.types import Event
from fastvideo.requests.types import RequestState


async def watch(
    stub: "gateway_pb2_grpc.GatewayServiceAsyncStub",
    request_id: str,
    after_sequence: int,
    policy: CallPolicy,
) -> AsyncGenerator[Event, None]:
    """The events after a sequence number, ending with the terminal one.

    A cut stream is taken up again where it was. Raises Unavailable when no server answers for
    the policy's silence, CorruptLog when a sequence number is missing, and what the server
    answers otherwise, such as NotFound.
    """
    sequence = after_sequence
    backoff = Backoff(policy)
    silence = Silence(policy)
    while True:
        lost: Unavailable | None = None
        silence.begin()
        try:
            async with aclosing(_stream(stub, request_id, sequence)) as events:
                async for event in events:
                    sequence = event.stream_version
                    silence.heard()
                    backoff.reset()
                    yield event
                    if event.type in TERMINAL:
                        return
            if await _is_over(stub, request_id, sequence, policy):
                return
        except Unavailable as error:
            lost = error
        if silence.is_over():
            raise lost or Unavailable(f"the watch of {request_id} keeps ending early")
        await backoff.pause()


async def _stream(
    stub: "gateway_pb2_grpc.GatewayServiceAsyncStub", request_id: str, after_sequence: int
) -> AsyncGenerator[Event, None]:
    """One uncut stretch, each sequence number one above the last."""
    request = filled(
        gateway_pb2.WatchRequestRequest(), request_id=request_id, after_sequence=after_sequence
    )
    sequence = after_sequence
    with typed_errors():
        stream = stub.WatchRequest(request)
    try:
        with typed_errors():
            async for response in stream:
                sequence += 1
                if response.sequence != sequence:
                    raise CorruptLog(
                        f"event {response.sequence} of {request_id} came where {sequence} is next",
                        reason="SEQUENCE_GAP",
                        subject=request_id,
                    )
                try:
                    event = typed(response.event)
                except CorruptLog as error:
                    # A newer server tells of what this client does not know.
                    if is_unknown(error):
                        continue
                    raise
                yield event
    finally:
        stream.cancel()


async def _is_over(
    stub: "gateway_pb2_grpc.GatewayServiceAsyncStub",
    request_id: str,
    sequence: int,
    policy: CallPolicy,
) -> bool:
    """Whether a stream that ended in order has nothing more to tell."""
    request = gateway_pb2.GetRequestRequest(request_id=request_id)
    answer = await call(stub.GetRequest, request, policy)
    state = wire.from_proto(RequestState, answer.state)
    return state.status in ENDED and sequence >= state.last_sequence
