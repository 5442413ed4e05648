"""The scheduler's fold of a released history: another state needs another EVOLVER_VERSION."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from fastvideo.deployment.catalog import Catalog
from fastvideo.events.records import Snapshot, StoredEvent
from fastvideo.events.store import EventStore
from fastvideo.scheduling.deployed import DeployedModels
from fastvideo.scheduling.evolve import EVOLVER_VERSION
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo_scheduler.recovery import RecoverySource, recover
from tests.contract.histories import files

# Events of the log that are folded, in the middle of requests and at the end, to the digests of
# the cores of `windows` by this version of the evolver.
VERSION = 1
DIGESTS: Mapping[int, str] = {
    60: "de2778e5643f24fa29fc1db8eda069210a9911b8804bb9fcfc30645bba339b8e",
    240: "a85dac34b794e57b5887dcc2ade05cf02c209cb918fe7d0760d35fc2f48cc250",
}


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
    assert (EVOLVER_VERSION, found.core.digest()) == (VERSION, DIGESTS[count]), (
        "the scheduler folds otherwise than it did: saved terms of before mean something else. "
        "Raise EVOLVER_VERSION, and write it and the new digests down here"
    )
