"""The scheduler's fold of a released history: another state needs another EVOLVER_VERSION."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, cast

import pytest

from fastvideo.deployment.catalog import Catalog
from fastvideo.events.records import Snapshot, StoredEvent
from fastvideo.events.store import EventStore
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.deployed import DeployedModels
from fastvideo.scheduling.evolve import EVOLVER_VERSION
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo_scheduler.recovery import RecoverySource, recover
from tests.contract.histories import files

# Events of `windows` that are folded, in the middle of requests and at the end, to the digests of
# what this version of the evolver makes of them. Fields that are as their class makes them are not
# looked at, so that a new one changes nothing here.
VERSION = 3
DIGESTS: Mapping[int, str] = {
    60: "eb87f6f8f736b36928157d13f1ab3bdb4dda734c0f6aa4bf5293197c53de5980",
    240: "76594b764ce0d044580d86cc555c8d9038a20213e9b2602d2be37a0ecc10b27a",
}


def digest(core: SchedulerCore) -> str:
    """SHA-256 of what a core knows, without what it does not differ in from a new one."""
    return hashlib.sha256(json.dumps(plain(core.snapshot().values)).encode()).hexdigest()


def plain(value: Any) -> Any:
    """A value of the state as JSON, fields that are as their class makes them left out."""
    if isinstance(value, datetime | Enum):
        return str(value)
    if isinstance(value, Mapping):
        return [[plain(key), plain(inner)] for key, inner in value.items()]
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if not dataclasses.is_dataclass(value):
        return value
    found = {}
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if inner is not default and plain(inner) != plain(default):
            found[field.name] = plain(inner)
    return found


class HistoryLog:
    """A committed history as a log, without saved terms."""

    partition_count = 1

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        self._events = tuple(events)

    async def load_snapshots(self, name: str) -> tuple[Snapshot, ...]:
        return ()

    async def load_checkpoint(self, name: str) -> Mapping[int, int]:
        return {}

    async def log_epoch(self) -> int:
        return 1

    async def heads(self) -> Mapping[int, int]:
        return {0: len(self._events)}

    async def stream_version(self, stream_id: str) -> int:
        return len(await self.read_stream(stream_id))

    async def read_stream(
        self, stream_id: str, after_version: int = 0, limit: int = 1_000
    ) -> tuple[StoredEvent, ...]:
        stream = [e for e in self._events if e.stream_id == stream_id]
        return tuple(stream[after_version : after_version + limit])

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1_000
    ) -> tuple[StoredEvent, ...]:
        return self._events[after_offset : after_offset + limit]


@pytest.mark.parametrize("count", DIGESTS)
async def test_the_fold_of_a_released_history_is_that_of_its_version(count: int) -> None:
    log: Any = HistoryLog(files.read("windows")[:count])
    found = await recover(
        RecoverySource(
            store=cast(EventStore, log),
            stream="scheduler-0",
            models=DeployedModels(Catalog.load(models=("moving-digits",))),
            policy=SchedulingPolicy(),
        )
    )
    assert not found.anew
    assert found.core.live_requests > 0
    assert (EVOLVER_VERSION, digest(found.core)) == (VERSION, DIGESTS[count]), (
        "the scheduler folds otherwise than it did: saved terms of before mean something else. "
        "Raise EVOLVER_VERSION, and write it and the new digests down here"
    )
