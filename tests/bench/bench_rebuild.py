"""P6: a scheduler's core rebuilt from its shard's stream, against reading the same rows."""

import asyncio
import statistics
import sys
import time
from datetime import datetime
from pathlib import Path

from measurement import Measurement

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fastvideo.clock import milliseconds
from fastvideo.events.appender import Appender
from fastvideo.events.catalog import new_event, payload_of
from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand, NewEvent, Snapshot, StreamAppend
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.ids import new_id
from fastvideo.replay.saved_term import SavedTerm
from fastvideo.requests.events import RequestAccepted
from fastvideo.requests.state import stream_of
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.events import SchedulerDecided
from fastvideo.scheduling.inputs import RequestSubmitted
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo_scheduler.recovery import RecoverySource, recover
from tests.plugins.servers import PostgresServer
from tests.unit.scheduling.world import Catalog, World

IDS = ("P6",)
STREAM = "scheduler-0"
REQUESTS = 1_500
WORKERS = 4
ROUNDS = 3
POLICY = SchedulingPolicy(window_steps_max=1)


def measure() -> list[Measurement]:
    """Fold tens of thousands of events several times."""
    server = PostgresServer()
    try:
        server.start()
        asyncio.run(upgrade(server.dsn()))
        return [asyncio.run(_measure(server.dsn()))]
    finally:
        server.remove()


async def _measure(dsn: str) -> Measurement:
    store = await PostgresEventStore.open(dsn)
    try:
        empty = SchedulerCore(Catalog(), policy=POLICY, epoch=1)
        saved = SavedTerm(
            core=empty.snapshot(), acceptances=(), cursors={}, log_epoch=await store.log_epoch()
        )
        world = await _write(store)
        await store.save_snapshot(STREAM, Snapshot(0, saved.encode()))
        events = await store.stream_version(STREAM)
        source = RecoverySource(store=store, stream=STREAM, models=Catalog(), policy=POLICY)
        folds, reads = [], []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            found = await recover(source)
            folds.append(time.perf_counter() - started)
            started = time.perf_counter()
            rows = await _read(store)
            reads.append(time.perf_counter() - started)
        assert found.core.digest() == world.core.digest()
        decoding = _seconds_of_decoding(rows)
    finally:
        await store.close()
    rate, peer = events / statistics.median(folds), events / statistics.median(reads)
    return Measurement(
        id="P6",
        what="rebuild of a scheduler's core from its stream",
        value=rate,
        unit="events/s",
        peer=peer,
        peer_name="reading the same rows and doing nothing",
        goal=">= 50 % of the peer and >= 50,000 events/s",
        met=rate >= 50_000 and rate >= 0.5 * peer,
        note=(
            f"{events} events; decoding alone {events / decoding:,.0f} events/s. A leader reads "
            "what follows the last saved term, 2 s of events"
        ),
        details={"events": float(events), "decoding_seconds": decoding},
    )


async def _write(store: PostgresEventStore) -> World:
    """A shard's history, as a leader writes it."""
    world = World(policy=POLICY)
    for n in range(WORKERS):
        world.attach(f"w{n}")
    for n in range(REQUESTS):
        world.submit(f"r{n}", steps=12)
    world.run()
    async with Appender(store) as appender:
        for event, now, decisions in world.history:
            event_id = _id(now)
            if isinstance(event, RequestSubmitted):
                accepted = _event(event_id, RequestAccepted(spec=event.spec), now)
                stream = StreamAppend(stream_of(event.spec.request_id), (accepted,))
                await appender.enqueue(AppendCommand(streams=(stream,)))
                written: tuple[NewEvent, ...] = ()
            else:
                written = (_event(event_id, event, now),)  # type: ignore[arg-type]
            decided = SchedulerDecided(
                input_event_id=event_id, at=now, decisions=decisions, epoch=1
            )
            stream = StreamAppend(STREAM, (*written, _event(_id(now), decided, now)))
            await appender.enqueue(AppendCommand(streams=(stream,)))
    return world


def _event(event_id: str, payload: EventPayload, now: datetime) -> NewEvent:
    return new_event(event_id, payload, EventMetadata(occurred_at=now))


def _id(now: datetime) -> str:
    return new_id("evt", milliseconds(now))


async def _read(store: PostgresEventStore) -> list[object]:
    rows: list[object] = []
    while more := await store.read_stream(STREAM, len(rows)):
        rows.extend(more)
    return rows


def _seconds_of_decoding(rows: list[object]) -> float:
    started = time.perf_counter()
    for row in rows:
        payload_of(row)  # type: ignore[arg-type]
    return time.perf_counter() - started
