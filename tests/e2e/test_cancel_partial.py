"""A request that is cancelled while it writes hands over what it had written."""

import asyncio

import pytest

from fastvideo.artifacts.events import ArtifactCompleted
from fastvideo.client import AsyncClient
from fastvideo.requests.events import RequestCancelled
from fastvideo.requests.types import OutputSpec, RequestStatus, SamplingOverrides
from tests.e2e.stack import Stack

OUTPUTS = OutputSpec(video=True, preview=True, sheet=True, latents=True)
# A cancel races the writing of the other files; it may come too late many times.
TRIES_MAX = 40


@pytest.mark.row("REQ-13")
async def test_a_cancelled_request_hands_over_the_files_that_it_had(stack: Stack) -> None:
    async with AsyncClient(stack.gateway) as client, asyncio.timeout(240):
        for seed in range(TRIES_MAX):
            sampling = SamplingOverrides(steps=2, num_frames=49, seed=seed)
            asked = await client.submit("a red three", sampling=sampling, outputs=OUTPUTS)
            request_id = asked.spec.request_id
            cancelled = False
            last = None
            async for event in client.watch(request_id):
                last = event.payload
                if isinstance(last, ArtifactCompleted) and not cancelled:
                    cancelled = True
                    await client.cancel(request_id)
            state = await client.get(request_id)
            if state.status is RequestStatus.CANCELLED:
                break
        assert isinstance(last, RequestCancelled), "every cancel came too late"
        assert state.artifacts
        for record in state.artifacts:
            if record.completed_at is not None:
                assert len(await client.read_artifact(record.artifact_id)) == record.size_bytes
        written = {record.artifact_id for record in state.artifacts if record.completed_at}
        assert written
        assert set(last.artifact_ids) == written
