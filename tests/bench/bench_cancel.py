"""P8: from the cancel call to compute stopped."""

import asyncio
import statistics
import time

from measurement import Measurement, percentile
from stack import embedded_stack

from fastvideo.client import AsyncClient
from fastvideo.requests.events import RequestCancelled, RequestProgressed
from fastvideo.requests.types import OutputSpec, SamplingOverrides

IDS = ("P8",)
ROUNDS = 15
STEPS = 200


def measure() -> list[Measurement]:
    """Cancel a long request in its denoising, many times."""
    with embedded_stack() as addresses:
        steps, stops = asyncio.run(_measure(addresses.gateway))
    step, stop = statistics.median(steps), statistics.median(stops)
    return [
        Measurement(
            id="P8",
            what="cancel, from the call until the cancelled event is with the client",
            value=stop,
            unit="s",
            peer=step,
            peer_name="one step, measured on the worker",
            goal="<= 1 step + 0.020 s",
            met=stop <= step + 0.020,
            note=f"p95 {percentile(stops, 0.95):.3f} s; commit and delivery are in it",
            details={"p95_seconds": percentile(stops, 0.95)},
        )
    ]


async def _measure(gateway: str) -> tuple[list[float], list[float]]:
    steps: list[float] = []
    stops: list[float] = []
    async with AsyncClient(gateway) as client:
        for round_index in range(ROUNDS):
            submitted = await client.submit(
                "a red three moving left",
                sampling=SamplingOverrides(steps=STEPS, seed=round_index),
                outputs=OutputSpec(video=True),
            )
            called = 0.0
            async for event in client.watch(submitted.spec.request_id):
                payload = event.payload
                if isinstance(payload, RequestProgressed) and payload.step > 20 and not called:
                    called = time.perf_counter()
                    await client.cancel(submitted.spec.request_id)
                if isinstance(payload, RequestCancelled):
                    stops.append(time.perf_counter() - called)
                    # Nearly all of its units were steps.
                    steps.append(payload.metrics.device_seconds / payload.metrics.units)
    return steps, stops
