"""A Postgres store in which all that can be archived is, before every read."""

from fastvideo.events.archive.archiver import Archiver
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import EventPosition, StoredEvent


class ArchivedEventStore(PostgresEventStore):
    """An `EventStore` that keeps almost nothing in the database."""

    async def archive_all(self) -> int:
        """Put every closed range away; how many there were."""
        assert self.archives.blobs is not None
        plain = PostgresEventStore(
            self._pool, self._partition_count, self._limits, self.archives.blobs
        )
        archiver = Archiver(plain, self._pool, self.archives.blobs)
        count = 0
        for partition in range(self.partition_count):
            for closed in await archiver.closed_ranges(partition, 1 << 60):
                async for _ in archiver.archive(closed):
                    pass
                count += 1
        return count

    async def read_stream(
        self, stream_id: str, after_version: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        await self.archive_all()
        return await super().read_stream(stream_id, after_version, limit)

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        await self.archive_all()
        return await super().read_partition(partition, after_offset, limit)

    async def position_of(self, event_id: str) -> EventPosition | None:
        await self.archive_all()
        return await super().position_of(event_id)
