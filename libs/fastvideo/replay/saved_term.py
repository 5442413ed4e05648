"""What a leader saves of its term beside the log: the core, and where it was in the log.

It is a cache. Whoever cannot read it does without.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fastvideo.errors import FailedPrecondition
from fastvideo.scheduling.snapshot import SchedulerSnapshot

_LENGTH_BYTES: Final = 8
_FORMAT: Final = 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Where the log has a live request."""

    request_id: str
    event_id: str
    partition: int
    offset: int
    accepted_at: datetime
    # W3C traceparent of the span that accepted it.
    traceparent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTerm:
    """A moment of a term."""

    core: SchedulerSnapshot
    acceptances: tuple[Acceptance, ...]
    # By partition, the offset up to which requests and cancellations were taken in.
    cursors: Mapping[int, int]
    # The log's epoch; offsets of another mean nothing.
    log_epoch: int

    def encode(self) -> bytes:
        """Bytes that `decode` reads."""
        header = {
            "format": _FORMAT,
            "acceptances": [_plain(acceptance) for acceptance in self.acceptances],
            "cursors": list(self.cursors.items()),
            "log_epoch": self.log_epoch,
        }
        first = zlib.compress(json.dumps(header, separators=(",", ":")).encode(), 1)
        return len(first).to_bytes(_LENGTH_BYTES) + first + self.core.encode()

    @classmethod
    def decode(cls, data: bytes) -> "SavedTerm":
        """What the bytes hold. FailedPrecondition when this program cannot read them."""
        header, end = _header(data)
        try:
            acceptances = tuple(map(_acceptance, header["acceptances"]))
            cursors = {int(partition): int(offset) for partition, offset in header["cursors"]}
            log_epoch = int(header["log_epoch"])
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(error) from error
        core = SchedulerSnapshot.decode(data[end:])
        return cls(core=core, acceptances=acceptances, cursors=cursors, log_epoch=log_epoch)

    @staticmethod
    def log_epoch_of(data: bytes) -> int:
        """The log's epoch when it was saved, also where another program's core is inside.

        FailedPrecondition when not even that can be read.
        """
        header, _ = _header(data)
        try:
            return int(header["log_epoch"])
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(error) from error


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    """What is beside the core, and where the core begins."""
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES])
    try:
        header: dict[str, Any] = json.loads(zlib.decompress(data[_LENGTH_BYTES:end]))
        if header["format"] != _FORMAT:
            raise ValueError(f"its format is {header['format']}, ours {_FORMAT}")
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise _unreadable(error) from error
    return header, end


def _unreadable(error: Exception) -> FailedPrecondition:
    return FailedPrecondition(
        f"the saved term cannot be read: {error}",
        reason="SNAPSHOT_UNREADABLE",
        subject="snapshot",
    )


def _plain(acceptance: Acceptance) -> list[Any]:
    values = [getattr(acceptance, field.name) for field in fields(acceptance)]
    return [
        (value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else value
        for value in values
    ]


def _acceptance(plain: Iterable[Any]) -> Acceptance:
    names = [field.name for field in fields(Acceptance)]
    values = dict(zip(names, plain, strict=True))
    return Acceptance(**{**values, "accepted_at": _EPOCH + values["accepted_at"] * _MICROSECOND})
