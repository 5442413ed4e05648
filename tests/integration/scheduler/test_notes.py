"""What a worker notes becomes events of the shard's stream; a successor passes over them."""

from fastvideo.deployment.catalog import Catalog
from fastvideo.model.caching import CacheClass, CacheLookup, CacheOutcome
from fastvideo.scheduling.deployed import DeployedModels
from fastvideo.scheduling.events import BatchExecuted, LoopPrepared, SchedulerDecided
from fastvideo.scheduling.traces import CacheAccess, CacheAccessed, MemoryReported
from fastvideo_scheduler.recovery import RecoverySource, recover
from tests.integration.scheduler.conftest import Stage, until
from tests.integration.scheduler.scripted_worker import MODEL
from tests.integration.scheduler.test_recovery import saved, settled

HIT = CacheLookup(cache_class=CacheClass.TEXT_ENCODER_OUTPUT, outcome=CacheOutcome.HIT)
ACCESSED = CacheAccessed(
    worker_id="w1", accesses=(CacheAccess(unit_id="u", request_id="r1", lookup=HIT),)
)
MEMORY = MemoryReported(worker_id="w1", pool="caches", reason="pressure")


async def test_each_note_is_an_event_behind_its_report(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    worker.script.notes = (ACCESSED, MEMORY)
    await stage.submit("r1", steps=3)
    await stage.ended("r1")
    events = await stage.shard_events()
    reports = [n for n, e in enumerate(events) if isinstance(e.payload, BatchExecuted)]
    assert len(reports) == 1 + 3 + 3 + 1
    for at in reports:
        report, accessed, memory, decided = events[at : at + 4]
        assert report.payload.notes == ()
        assert (accessed.payload, memory.payload) == (ACCESSED, MEMORY)
        assert isinstance(decided.payload, SchedulerDecided)
        assert {e.metadata.causation_id for e in (accessed, memory, decided)} == {report.event_id}
        assert (accessed.name, memory.name) == ("trace.cache", "trace.memory")
        about = accessed.metadata
        assert (about.request_id, about.model_id, about.worker_id) == ("r1", MODEL, "w1")
        assert about.model_instance_id == f"w1/{MODEL}"
        assert (about.role_id, about.loop_id) == ("worker", report.metadata.loop_id)
        assert about.traceparent == report.metadata.traceparent
        assert "fastvideo" in about.versions
        assert (memory.metadata.request_id, memory.metadata.worker_id) == ("", "w1")
    prepared = [e.payload for e in events if isinstance(e.payload, LoopPrepared)]
    assert all(payload.notes == () for payload in prepared)
    assert [e.stream_version for e in events] == list(range(1, len(events) + 1))


async def test_a_saved_core_and_a_stream_with_notes_give_the_core_that_wrote_them(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    worker.script.notes = (ACCESSED, MEMORY)
    worker.script.step_seconds = 0.01
    await stage.submit("r1", steps=60)
    await until(lambda: len(worker.batches) > 30)
    await saved(stage)
    leader = scheduler.shard.leader
    await settled(worker, leader)
    events = await stage.shard_events()
    found = await recover(
        RecoverySource(
            store=stage.store,
            stream="scheduler-0",
            models=DeployedModels(Catalog.load(models=(MODEL,))),
            policy=leader._parts.policy,
        )
    )
    assert not found.anew
    assert leader._journal.version == found.version == len(events)
    assert found.core.digest() == leader.core.digest()
    worker.script.go.set()
    await stage.ended("r1")
