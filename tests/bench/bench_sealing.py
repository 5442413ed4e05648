"""What it takes to seal a request on its way into the log and to open it on its way out."""

import asyncio
import sys
import time
from pathlib import Path

from measurement import Measurement, percentile

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.sealing.keys import MemoryTenantKeys
from fastvideo.events.sealing.seal import Seals
from fastvideo.events.sealing.store import SealedEventStore
from fastvideo.events.store import EventStore
from tests.contract.sealed_texts import accepted

IDS = ("P5",)
ROUNDS = 2_000
PROMPT = "a long prompt of some words, as people write them " * 4


def measure() -> list[Measurement]:
    """Append and read in memory, with and without seals, in turns."""
    return asyncio.run(_measure())


async def _measure() -> list[Measurement]:
    below = MemoryEventStore()
    stores: tuple[EventStore, ...] = (
        SealedEventStore(below, Seals(MemoryTenantKeys())),
        MemoryEventStore(),
    )
    samples: tuple[list[float], list[float]] = ([], [])
    for i in range(ROUNDS):
        for store, kept in zip(stores, samples, strict=True):
            kept.append(await _seconds(store, f"request-{i}"))
    sealed, plain = (1e6 * percentile(kept[50:], 0.5) for kept in samples)
    return [
        Measurement(
            id="P5",
            what="a request sealed on its way into the log and opened once",
            value=sealed - plain,
            unit="us",
            goal="below 1,000 us, a twentieth of the time from accepted to started",
            met=sealed - plain < 1_000,
            details={"append_and_read_sealed_us": sealed, "append_and_read_plain_us": plain},
        )
    ]


async def _seconds(store: EventStore, stream_id: str) -> float:
    command = AppendCommand((StreamAppend(stream_id, (accepted("acme", PROMPT, "blurry"),)),))
    start = time.perf_counter()
    await store.append(command)
    await store.read_stream(stream_id)
    return time.perf_counter() - start
