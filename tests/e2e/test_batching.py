"""Requests at different steps share forwards, and none of them can tell."""

import asyncio

import pytest

from fastvideo.client import AsyncClient
from fastvideo.requests.types import SamplingOverrides
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import UnitKind
from tests.e2e.stack import Stack

ASKED = [
    ("a red three moving left", 8, 21),
    ("blue digit seven moves up", 12, 22),
    ("the one is white and moves down", 20, 23),
    ("a green number nine going right", 6, 24),
    ("a yellow zero moving up", 10, 25),
    ("purple digit four moves left", 16, 26),
    ("the six is red and moves right", 9, 27),
    ("a white number two going down", 14, 28),
]


@pytest.mark.row("REQ-04", "SCH-10")
async def test_eight_at_once_give_the_bits_of_eight_alone(stack: Stack) -> None:
    async with AsyncClient(stack.gateway) as client:

        async def digest(asked: tuple[str, int, int]) -> tuple[str, str]:
            prompt, steps, seed = asked
            state = await client.generate(
                prompt, sampling=SamplingOverrides(steps=steps, seed=seed)
            )
            return state.spec.request_id, state.latents_digest

        alone = [(await digest(asked))[1] for asked in ASKED]
        together = await asyncio.gather(*map(digest, ASKED))
    assert [found for _, found in together] == alone

    ids = {request_id for request_id, _ in together}
    shared = []
    for event in await stack.log("scheduler-"):
        batch = event.payload
        if isinstance(batch, BatchExecuted) and batch.kind is UnitKind.DIFFUSION_STEP:
            members = {result.loop.request_id for result in batch.results} & ids
            if len(members) > 1:
                shared.append(members)
    assert shared, "no forward was shared"
    assert len(set().union(*shared)) >= 4
