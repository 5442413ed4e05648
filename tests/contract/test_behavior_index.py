"""Records of behaviour by any field: one suite, in memory and on Postgres."""

import itertools
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fastvideo.errors import InvalidField, NotFound
from fastvideo.events.catalog import new_event
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.types import EventMetadata
from fastvideo.model.specs import ParallelPlan
from fastvideo.requests.behavior import BehaviorRecord
from fastvideo.scheduling.traces import BehaviorRecorded
from fastvideo_gateway.behaviors import BehaviorIndex, BehaviorLister
from fastvideo_gateway.behaviors_memory import MemoryBehaviors
from fastvideo_gateway.behaviors_postgres import PostgresBehaviors

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STREAM = "scheduler-0"


@pytest.fixture(params=["memory", "postgres"])
async def index(request: pytest.FixtureRequest) -> AsyncIterator[BehaviorIndex]:
    if request.param == "memory":
        yield MemoryBehaviors()
        return
    found = await PostgresBehaviors.open(request.getfixturevalue("postgres_dsn"), log_epoch=1)
    yield found
    await found.close()


class Fresh:
    async def is_fresh(self, timeout_s: float) -> bool:
        return True


class Writer:
    """A log in memory; the time rises by a second an event, unless it is held."""

    def __init__(self) -> None:
        self.log = MemoryEventStore()
        self._numbers = itertools.count()

    async def record(self, behavior_id: str, second: int, record: BehaviorRecord) -> None:
        event = new_event(
            f"evt_{next(self._numbers)}",
            BehaviorRecorded(behavior_id=behavior_id, record=record),
            EventMetadata(occurred_at=START + timedelta(seconds=second)),
        )
        await self.log.append(AppendCommand(streams=(StreamAppend(STREAM, (event,)),)))


RECORD = BehaviorRecord(
    request_id="r1",
    model_id="digits",
    policy_version="w1",
    seeds=(7,),
    guidance_settings={"scale": "3.0"},
    noise_level=0.7,
    parallel_plan=ParallelPlan(),
)


@pytest.fixture
async def writer(index: BehaviorIndex) -> Writer:
    writer = Writer()
    await writer.record("b1", 1, RECORD)
    await writer.record("b2", 2, replace(RECORD, request_id="r2", seeds=(8,)))
    await writer.record("b3", 2, replace(RECORD, request_id="r3", policy_version="w2"))
    await writer.record("b4", 3, replace(RECORD, request_id="r4", guidance_settings={}))
    # The same sample, told by another attempt.
    await writer.record("b1", 9, replace(RECORD, attempt=2))
    await index.apply(await writer.log.read_partition(0))
    return writer


async def found(index: BehaviorIndex, where: Mapping[str, str]) -> list[str]:
    page = await BehaviorLister(index, Fresh()).page(where)
    return [behavior.behavior_id for behavior in page.behaviors]


@pytest.mark.row("TRL-17")
async def test_records_are_found_by_any_field_newest_first(
    index: BehaviorIndex, writer: Writer
) -> None:
    assert await found(index, {}) == ["b4", "b3", "b2", "b1"]
    assert await found(index, {"policy_version": "w1"}) == ["b4", "b2", "b1"]
    both = {"policy_version": "w1", "guidance_settings": "scale=3.0", "noise_level": "0.70"}
    assert await found(index, both) == ["b2", "b1"]
    assert await found(index, {"seeds": "8"}) == ["b2"]
    assert await found(index, {"behavior_id": "b3"}) == ["b3"]
    assert await found(index, {"model_id": "other"}) == []


async def test_the_first_record_of_a_sample_counts(index: BehaviorIndex, writer: Writer) -> None:
    page = await BehaviorLister(index, Fresh()).page({"request_id": "r1"})
    [first] = page.behaviors
    assert first.record == RECORD
    await index.apply(await writer.log.read_partition(0))
    assert await found(index, {"request_id": "r1"}) == ["b1"]
    assert (await index.positions())[0] == 5


async def test_pages_follow_one_another_and_fit_only_their_question(
    index: BehaviorIndex, writer: Writer
) -> None:
    lister, ids, token = BehaviorLister(index, Fresh()), [], ""
    while True:
        page = await lister.page({"model_id": "digits"}, page_size=1, token=token)
        ids += [behavior.behavior_id for behavior in page.behaviors]
        token = page.next_page_token
        if not token:
            break
        with pytest.raises(InvalidField, match="page_token"):
            await lister.page({"model_id": "other"}, token=token)
    assert ids == ["b4", "b3", "b2", "b1"]
    with pytest.raises(InvalidField, match=r"where\[colour\]"):
        await lister.page({"colour": "red"})
    with pytest.raises(InvalidField, match="page_size"):
        await lister.page({}, page_size=1_000)


async def test_the_request_of_a_record_is_found(index: BehaviorIndex, writer: Writer) -> None:
    lister = BehaviorLister(index, Fresh())
    assert await lister.request_of("b3") == "r3"
    with pytest.raises(NotFound):
        await lister.request_of("b0")


async def test_what_is_no_behavior_and_what_a_newer_program_wrote_is_passed_over(
    index: BehaviorIndex, writer: Writer
) -> None:
    await writer.record("b9", 20, replace(RECORD, request_id="r9"))
    events = await writer.log.read_partition(0)
    newer = events[-1]._replace(schema_version=99)
    await index.apply((*events[:-1], newer))
    assert "b9" not in await found(index, {})
    assert (await index.positions())[0] == 6
