"""An archive's bytes: deflated blocks of consecutive events, and behind them what they are.

    magic | block | block | ... | manifest | length of the manifest (8 bytes) | magic

The same events give the same bytes, so that an archive that was written twice is one object. It
holds what the table held; whoever reads it checks each payload by its digest again.
"""

import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Final

from google.protobuf.message import DecodeError

from fastvideo.api.events.v1 import archive_pb2
from fastvideo.errors import CorruptLog
from fastvideo.events.records import StoredEvent, payload_digest

MAGIC: Final = b"FVEVENTS"
FORMAT: Final = 1
BLOCK_EVENTS: Final = 256
LENGTH_BYTES: Final = 8


def write_archive(events: Sequence[StoredEvent], previous_sha256: bytes) -> bytes:
    """The archive of consecutive events of one partition, at least one."""
    first, last = events[0], events[-1]
    manifest = archive_pb2.ArchiveManifest(
        format=FORMAT,
        partition=first.partition,
        first_offset=first.offset,
        last_offset=last.offset,
        events=len(events),
        previous_sha256=previous_sha256,
    )
    parts, position = [MAGIC], len(MAGIC)
    for start in range(0, len(events), BLOCK_EVENTS):
        some = events[start : start + BLOCK_EVENTS]
        block = zlib.compress(_block(some))
        described = manifest.blocks.add(
            first_offset=some[0].offset, position=position, length=len(block)
        )
        for event in reversed(some):
            described.streams[event.stream_id] = event.stream_version
        parts.append(block)
        position += len(block)
    tail = zlib.compress(manifest.SerializeToString(deterministic=True))
    return b"".join((*parts, tail, len(tail).to_bytes(LENGTH_BYTES), MAGIC))


class Archive:
    """The events of an archive's bytes. Raises CorruptLog when they are none.

    `name` is told in errors; `log_epoch` is that of the log now, which its events carry.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        self.manifest = self._manifest()

    def _manifest(self) -> archive_pb2.ArchiveManifest:
        data, end = self._data, len(self._data) - len(MAGIC)
        if not data.startswith(MAGIC) or not data.endswith(MAGIC):
            raise corrupt(self._name, "is none")
        length = int.from_bytes(data[end - LENGTH_BYTES : end])
        try:
            manifest = archive_pb2.ArchiveManifest.FromString(
                zlib.decompress(data[end - LENGTH_BYTES - length : end - LENGTH_BYTES])
            )
        except (zlib.error, DecodeError) as error:
            raise corrupt(self._name, "has no manifest") from error
        if manifest.format != FORMAT:
            raise corrupt(self._name, f"has format {manifest.format}, not {FORMAT}")
        return manifest

    def events(self, first: int, last: int, log_epoch: int) -> Iterator[StoredEvent]:
        """The events from offset `first` to `last`, in order; both may lie outside."""
        blocks = self.manifest.blocks
        for i, block in enumerate(blocks):
            behind = blocks[i + 1].first_offset if i + 1 < len(blocks) else None
            if block.first_offset > last or (behind is not None and behind <= first):
                continue
            for event in self._decode(block):
                if first <= event.offset <= last:
                    yield self._stored(event, log_epoch)

    def stream_events(
        self, stream_id: str, after_version: int, log_epoch: int
    ) -> Iterator[StoredEvent]:
        """The events of a stream after a version, in order; only their blocks are opened."""
        blocks = [block for block in self.manifest.blocks if stream_id in block.streams]
        for i, block in enumerate(blocks):
            if i + 1 < len(blocks) and blocks[i + 1].streams[stream_id] <= after_version + 1:
                continue
            for event in self._decode(block):
                if event.stream_id == stream_id and event.stream_version > after_version:
                    yield self._stored(event, log_epoch)

    def _decode(self, block: archive_pb2.ArchiveBlock) -> Sequence[archive_pb2.ArchivedEvent]:
        deflated = self._data[block.position : block.position + block.length]
        try:
            return archive_pb2.ArchivedEvents.FromString(zlib.decompress(deflated)).events
        except (zlib.error, DecodeError) as error:
            raise corrupt(self._name, f"has no block at offset {block.first_offset}") from error

    def _stored(self, event: archive_pb2.ArchivedEvent, log_epoch: int) -> StoredEvent:
        if payload_digest(event.payload) != event.payload_sha256:
            raise CorruptLog(
                f"the payload of event {event.event_id} does not have its digest",
                subject=event.event_id,
            )
        return StoredEvent(
            partition=self.manifest.partition,
            offset=event.offset,
            stream_id=event.stream_id,
            stream_version=event.stream_version,
            event_id=event.event_id,
            type=event.type,
            schema_version=event.schema_version,
            payload=event.payload,
            payload_sha256=event.payload_sha256,
            metadata=event.metadata,
            fence_epoch=event.fence_epoch,
            recorded_at=event.recorded_at.ToDatetime(UTC),
            log_epoch=log_epoch,
        )


def corrupt(name: str, what: str) -> CorruptLog:
    """The error of an archive that is missing or not as it was written."""
    return CorruptLog(f"archive {name} {what}", reason="ARCHIVE", subject=name)


def _block(events: Sequence[StoredEvent]) -> bytes:
    block = archive_pb2.ArchivedEvents()
    for event in events:
        kept = block.events.add(
            offset=event.offset,
            stream_id=event.stream_id,
            stream_version=event.stream_version,
            event_id=event.event_id,
            type=event.type,
            schema_version=event.schema_version,
            payload=event.payload,
            payload_sha256=event.payload_sha256,
            metadata=event.metadata,
            fence_epoch=event.fence_epoch,
        )
        kept.recorded_at.FromDatetime(event.recorded_at)
    return block.SerializeToString(deterministic=True)
