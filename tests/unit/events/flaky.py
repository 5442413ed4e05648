"""A memory store that fails when told to."""

from collections.abc import Sequence

from fastvideo.errors import Unavailable
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import AppendCommand, AppendResult, StoredEvent


class FlakyStore(MemoryEventStore):
    """Appends and reads raise Unavailable as often as told."""

    def __init__(self, partition_count: int = 1) -> None:
        super().__init__(partition_count)
        # Failures to come: before anything is done, and after the commit, its answer lost.
        self.failures_before = 0
        self.answers_lost = 0
        self.read_failures = 0
        self.commits: list[int] = []

    async def append_many(self, commands: Sequence[AppendCommand]) -> tuple[AppendResult, ...]:
        if self.failures_before:
            self.failures_before -= 1
            raise Unavailable("down")
        results = await super().append_many(commands)
        self.commits.append(len(commands))
        if self.answers_lost:
            self.answers_lost -= 1
            raise Unavailable("answer lost")
        return results

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        if self.read_failures:
            self.read_failures -= 1
            raise Unavailable("down")
        return await super().read_partition(partition, after_offset, limit)
