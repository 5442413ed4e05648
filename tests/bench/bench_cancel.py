"""P8: from the cancel call to compute stopped.

Compute has stopped once the last batch of the request was reported; the scheduler's clock, which
is this machine's, has written when that was. The cancelled event reaches the client later: its
commit and its way there are told apart.
"""

import asyncio
import statistics
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from measurement import Measurement, percentile
from stack import embedded_stack

from fastvideo.client import AsyncClient, EventFilter
from fastvideo.events.types import Event
from fastvideo.requests.events import RequestCancelled, RequestProgressed
from fastvideo.requests.types import OutputSpec, SamplingOverrides
from fastvideo.scheduling.events import BatchExecuted

IDS = ("P8",)
ROUNDS = 15
STEPS = 200


@dataclass(frozen=True)
class Cancels:
    """Seconds of each cancel, from its call on."""

    steps: list[float] = field(default_factory=list)
    stops: list[float] = field(default_factory=list)
    told: list[float] = field(default_factory=list)


def measure() -> list[Measurement]:
    """Cancel a long request in its denoising, many times."""
    with embedded_stack() as addresses:
        cancels = asyncio.run(_measure(addresses.gateway))
    step = statistics.median(cancels.steps)
    what = (
        ("cancel, from the call until compute stopped and was reported", cancels.stops),
        ("cancel, from the call until the cancelled event is with the client", cancels.told),
    )
    return [
        Measurement(
            id="P8",
            what=name,
            value=statistics.median(seconds),
            unit="s",
            peer=step,
            peer_name="one step, measured on the worker",
            goal="<= 1 step + 0.020 s" if seconds is cancels.stops else "reported",
            met=statistics.median(seconds) <= step + 0.020 if seconds is cancels.stops else None,
            note=f"p95 {percentile(seconds, 0.95):.3f} s",
            details={"p95_seconds": percentile(seconds, 0.95)},
        )
        for name, seconds in what
    ]


async def _measure(gateway: str) -> Cancels:
    cancels = Cancels()
    async with AsyncClient(gateway) as client:
        for round_index in range(ROUNDS):
            submitted = await client.submit(
                "a red three moving left",
                sampling=SamplingOverrides(steps=STEPS, seed=round_index),
                outputs=OutputSpec(video=True),
            )
            request_id = submitted.spec.request_id
            called_s, called_at = 0.0, datetime.now(UTC)
            async for event in client.watch(request_id):
                payload = event.payload
                if isinstance(payload, RequestProgressed) and payload.step > 20 and not called_s:
                    called_s, called_at = time.perf_counter(), datetime.now(UTC)
                    await client.cancel(request_id)
                if isinstance(payload, RequestCancelled):
                    cancels.told.append(time.perf_counter() - called_s)
                    # Nearly all of its units were steps.
                    cancels.steps.append(payload.metrics.device_seconds / payload.metrics.units)
            stopped_at = await _last_report(client, request_id)
            cancels.stops.append(max(0.0, (stopped_at - called_at).total_seconds()))
    return cancels


async def _last_report(client: AsyncClient, request_id: str) -> datetime:
    wanted = EventFilter(request_ids=(request_id,), types=(BatchExecuted.__name__,))
    async for entry in client.log.read(wanted, newest_first=True, limit=1):
        assert isinstance(entry, Event)
        return entry.metadata.occurred_at
    raise AssertionError(f"no batch of {request_id} is in the log")
