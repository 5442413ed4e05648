"""The bytes behind records: whether one may name them, and that they go only when none does.

A record is completed by an append that compares the stream of its digest; so is a removal. Of the
two that meet, the second one finds the stream changed and looks again.
"""

from dataclasses import dataclass

from fastvideo.artifacts.removal import BlobEvent, BlobLife, evolve, stream_of
from fastvideo.blobs import BlobStore
from fastvideo.errors import CorruptLog, Unavailable
from fastvideo.events.catalog import payload_of
from fastvideo.events.store import EventLog

EVENTS_PER_READ = 500


@dataclass(frozen=True, slots=True)
class KnownBlob:
    """What the log says of the bytes of a digest, and the version of their stream."""

    life: BlobLife
    version: int


class BlobUses:
    """Reads the streams of digests."""

    def __init__(self, log: EventLog, blobs: BlobStore) -> None:
        self._log = log
        self._blobs = blobs

    async def read(self, digest: str) -> KnownBlob:
        """The bytes as the log knows them. Raises CorruptLog when their stream breaks its rules."""
        life, version = BlobLife(), 0
        while True:
            page = await self._log.read_stream(stream_of(digest), version, EVENTS_PER_READ)
            for stored in page:
                payload = payload_of(stored)
                if not isinstance(payload, BlobEvent):
                    raise CorruptLog(f"{stored.type} in {stored.stream_id}", subject=digest)
                life = evolve(life, payload)
                version = stored.stream_version
            if len(page) < EVENTS_PER_READ:
                return KnownBlob(life, version)

    async def version_for_record(self, digest: str) -> int:
        """The version at which a record may name the bytes.

        Raises Unavailable while they are being removed, and when they went after they were
        stored: whoever puts them stores them again.
        """
        known = await self.read(digest)
        if known.life.removing or not await self._blobs.exists(digest):
            raise Unavailable(
                "the same bytes are being removed; put them again",
                reason="BLOB_BEING_REMOVED",
                subject=digest,
            )
        return known.version
