"""A long log that looks like one: a released stack's history, told again and again.

Each retelling has ids of its own, of the same length, so that the stored bytes stay valid: in
protobuf a text is its length and its characters. What an event is about, how large it is and in
what order it comes is as a real stack wrote it.
"""

import base64
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand, NewEvent, StoredEvent, StreamAppend
from tests.contract.histories import files

HISTORY: Final = "windows"
EVENTS_PER_APPEND: Final = 5_000

# Ids of requests, events, artifacts, sessions and so on; workers and models stay the same.
_ID: Final = re.compile(rb"\b(req|evt|art|ses)_([0-9a-z]{26})")


async def write(store: PostgresEventStore, events: int) -> int:
    """Fill an empty log with at least so many events; how many it has then."""
    history = files.read(HISTORY)
    written = 0
    batch: list[AppendCommand] = []
    waiting = 0
    for telling in range(-(-events // len(history))):
        for command in _commands(history, telling):
            batch.append(command)
            waiting += len(command.streams[0].events)
            if waiting >= EVENTS_PER_APPEND:
                await store.append_many(batch)
                written, waiting = written + waiting, 0
                batch.clear()
    if batch:
        await store.append_many(batch)
    return written + waiting


def request_ids(telling: int) -> list[str]:
    """The requests of one telling."""
    streams = dict.fromkeys(e.stream_id for e in files.read(HISTORY) if "request-" in e.stream_id)
    return [_told(stream.encode(), telling).decode().removeprefix("request-") for stream in streams]


def _commands(history: Sequence[StoredEvent], telling: int) -> Iterator[AppendCommand]:
    for stream_id, run in groupby(history, key=lambda stored: stored.stream_id):
        events = tuple(_events(run, telling))
        yield AppendCommand((StreamAppend(_told(stream_id.encode(), telling).decode(), events),))


def _events(run: Iterable[StoredEvent], telling: int) -> Iterator[NewEvent]:
    for stored in run:
        yield NewEvent(
            event_id=_told(stored.event_id.encode(), telling).decode(),
            type=stored.type,
            schema_version=stored.schema_version,
            payload=_told(stored.payload, telling),
            metadata=_told(stored.metadata, telling),
        )


def _told(data: bytes, telling: int) -> bytes:
    return _ID.sub(lambda found: _renamed(found[1], found[2], telling), data)


def _renamed(kind: bytes, name: bytes, telling: int) -> bytes:
    """Another id of the same length; its first ten characters, the time, stay."""
    digest = hashlib.blake2b(name + telling.to_bytes(8), digest_size=10).digest()
    return kind + b"_" + name[:10] + base64.b32encode(digest).lower()
