"""Whether what was archived is as it was written: digests, manifests, the chain, the events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from fastvideo.errors import CorruptLog, FailedPrecondition
from fastvideo.events.archive.archives import ArchiveRecord, check_chain, in_blocks
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.reading.verifying import LogFault, PartitionCheck

ARCHIVES_PER_READ: Final = 1_000


class StoredArchiveChecks:
    """The `ArchiveChecks` of a store: every archive is read whole."""

    def __init__(self, store: PostgresEventStore) -> None:
        self._store = store

    async def archive_faults(self) -> AsyncIterator[tuple[LogFault, ...]]:
        """What is wrong with each archive, one at a time; empty when it is as it must be."""
        for partition in range(self._store.partition_count):
            check = PartitionCheck(partition, 0)
            records: list[ArchiveRecord] = []
            while page := await self._store.archives.records(
                partition, records[-1].last_offset if records else 0, ARCHIVES_PER_READ
            ):
                records.extend(page)
            try:
                check_chain(records)
            except CorruptLog as error:
                yield (LogFault(kind="archive_digest", partition=partition, message=error.message),)
            for record in records:
                yield await self._faults(record, check)

    async def _faults(self, record: ArchiveRecord, check: PartitionCheck) -> tuple[LogFault, ...]:
        faults: list[LogFault] = []
        try:
            archive = await self._store.archives.open(record)
            events = archive.events(record.first_offset, record.last_offset, log_epoch=0)
            async for some in in_blocks(events):
                faults += await asyncio.to_thread(check.take, some)
        except (CorruptLog, FailedPrecondition) as error:
            check.offset = record.last_offset
            faults.append(
                LogFault(
                    kind="archive_digest",
                    partition=record.partition,
                    offset=record.first_offset,
                    message=error.message,
                )
            )
        return tuple(faults)
