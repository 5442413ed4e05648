"""Cancelling a session: its active requests stop, and the session goes on."""

import asyncio

import pytest

from fastvideo import wire
from fastvideo.api.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from fastvideo.client import AsyncClient
from fastvideo.requests.types import RequestStatus, SamplingOverrides
from fastvideo.rpc.channel import open_channel
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from tests.e2e.stack import Stack

PROMPT = "a yellow five moving right"
LONG = SamplingOverrides(steps=300)


@pytest.mark.row("REQ-12")
async def test_a_cancelled_session_stops_its_work_and_stays_usable(stack: Stack) -> None:
    async with AsyncClient(stack.gateway) as client, asyncio.timeout(120):
        session_id = (await client.create_session()).session_id
        active = [
            await client.submit(PROMPT, sampling=LONG, session_id=session_id) for _ in range(2)
        ]
        other = await client.submit(PROMPT, sampling=SamplingOverrides(steps=30))
        while (await client.get(active[0].spec.request_id)).progress == 0:
            await asyncio.sleep(0.02)
        scope = CancelScope(kind=CancelScopeKind.SESSION, target_id=session_id)
        async with open_channel(stack.gateway) as channel:
            gateway = gateway_pb2_grpc.GatewayServiceStub(channel)
            await gateway.CancelRequest(
                gateway_pb2.CancelRequestRequest(scope=wire.to_proto(scope), reason="another idea")
            )
        for state in active:
            ended = await client.wait(state.spec.request_id)
            assert ended.status is RequestStatus.CANCELLED
            assert ended.metrics is not None
            assert ended.metrics.units < 300
        # Work of others is not touched, and the session takes the next request.
        assert (await client.wait(other.spec.request_id)).status is RequestStatus.COMPLETED
        following = await client.submit(
            PROMPT, sampling=SamplingOverrides(steps=4), session_id=session_id
        )
        ended = await client.wait(following.spec.request_id)
        assert ended.status is RequestStatus.COMPLETED
        assert len(ended.artifacts) == 1
