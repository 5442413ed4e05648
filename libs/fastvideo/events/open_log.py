"""The log of a deployment put together: its table, its archives, and the seals of its tenants."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fastvideo.blobs import BlobStore, open_blobs
from fastvideo.errors import InvalidField
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.postgres_pool import PostgresPool
from fastvideo.events.sealing.keys import MASTER_KEY_VARIABLE, MasterKey, PostgresTenantKeys
from fastvideo.events.sealing.seal import Seals
from fastvideo.events.sealing.store import SealedEventStore
from fastvideo.events.store import EventStore
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

KEY_CONNECTIONS_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Where a deployment's log is, as every service that has a database is told."""

    postgres_dsn: str = field(repr=False)
    # Where archives are: "file:///folder" or "s3://bucket/prefix"; empty when nothing is archived.
    archive_url: str = ""
    # Of an S3 that is not Amazon's; keys and region come from the usual AWS_ variables.
    s3_endpoint: str = ""
    # The key of tenants' keys; None keeps what tenants write as they wrote it.
    master_key: MasterKey | None = field(default=None, repr=False)

    def archive(self) -> BlobStore | None:
        """The store of archives, when there is one."""
        if not self.archive_url:
            return None
        options = {"endpoint": self.s3_endpoint} if self.s3_endpoint else None
        return open_blobs(self.archive_url, options)


@dataclass(frozen=True, slots=True)
class OpenLog:
    """A log in use."""

    # What services read and write: plain events.
    store: EventStore
    # What is in the database: sealed events, for whoever hands them on or checks them.
    sealed: PostgresEventStore
    _keys: PostgresPool | None = None

    async def close(self) -> None:
        """Give back the connections."""
        await self.sealed.close()
        if self._keys is not None:
            await self._keys.close()


async def open_log(config: LogConfig) -> OpenLog:
    """Connect to a migrated database.

    Raises Unavailable, and FailedPrecondition for another schema and for another master key than
    the one that tenants' keys were made under.
    """
    sealed = await PostgresEventStore.open(config.postgres_dsn, archive=config.archive())
    if config.master_key is None:
        _LOG.warning("no master key: what tenants write is kept as they wrote it")
        return OpenLog(sealed, sealed)
    try:
        pool = await PostgresPool.open(config.postgres_dsn, connections_max=KEY_CONNECTIONS_MAX)
    except BaseException:
        await sealed.close()
        raise
    keys = PostgresTenantKeys(pool, config.master_key)
    opened = OpenLog(SealedEventStore(sealed, Seals(keys)), sealed, pool)
    try:
        await keys.check()
    except BaseException:
        await opened.close()
        raise
    return opened


def master_key_of(text: str, file: Path | None) -> MasterKey | None:
    """The master key of a variable, or else of the file that another names; None without both.

    Raises InvalidField for what is none, and for a file that cannot be read.
    """
    if not text and file is not None:
        try:
            text = file.read_text()
        except OSError as error:
            field = f"{MASTER_KEY_VARIABLE}_FILE"
            raise InvalidField(field, str(file), "a file that can be read") from error
    return MasterKey.parse(text) if text else None
