"""Workers that attach together at the start of a term are told what the log knows, once."""

import asyncio

from fastvideo.clock import ManualClock
from fastvideo.events.catalog import new_event
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import AppendCommand, StoredEvent, StreamAppend
from fastvideo.events.types import EventMetadata
from fastvideo.scheduling.events import WorkerAttached
from fastvideo.scheduling.known_weights import model_stream
from fastvideo.scheduling.traces import WeightsChanged
from fastvideo.scheduling.work import ModelState
from fastvideo_scheduler.weights_log import WeightsLog
from tests.unit.scheduling.world import START

MODEL = "tiny"


class Interleaved(MemoryEventStore):
    """A store in which others get their turn around every read."""

    async def read_stream(
        self, stream_id: str, after_version: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        await asyncio.sleep(0)
        found = await super().read_stream(stream_id, after_version, limit)
        await asyncio.sleep(0)
        return found


def change(instance_id: str, from_version: str, to_version: str) -> WeightsChanged:
    return WeightsChanged(
        worker_id="w1",
        model_instance_id=instance_id,
        model_id=MODEL,
        card_digest="card",
        from_version=from_version,
        to_version=to_version,
    )


def attached(worker_id: str, *versions: str) -> WorkerAttached:
    instances = tuple(
        ModelState(
            model_instance_id=f"mi_{version}",
            model_id=MODEL,
            card_digest="card",
            weights_version=version,
        )
        for version in versions
    )
    return WorkerAttached(worker_id=worker_id, instances=instances)


async def test_workers_that_attach_at_once_fold_a_model_s_stream_once() -> None:
    store = Interleaved(clock=ManualClock(START))
    # The second took the place of the first.
    history = (change("mi_1", "", "1"), change("mi_2", "1", "2"))
    events = tuple(
        new_event(f"evt_{number}", payload, EventMetadata(occurred_at=START))
        for number, payload in enumerate(history)
    )
    await store.append(AppendCommand((StreamAppend(model_stream(MODEL), events),)))
    weights = WeightsLog(store)

    async def told(worker: WorkerAttached) -> tuple[WeightsChanged, ...]:
        await weights.read((MODEL,))
        return weights.take(worker)

    same, new = await asyncio.gather(told(attached("w1", "2")), told(attached("w2", "2")))
    assert same == ()
    assert [(one.worker_id, one.from_version, one.to_version) for one in new] == [("w2", "", "2")]
