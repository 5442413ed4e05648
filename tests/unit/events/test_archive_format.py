"""An archive gives back what it was made of, and says when it is none."""

from datetime import UTC, datetime, timedelta

import pytest

from fastvideo.errors import CorruptLog
from fastvideo.events.archive.format import BLOCK_EVENTS, Archive, write_archive
from fastvideo.events.records import StoredEvent, payload_digest

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
FIRST = 101


def events(count: int) -> list[StoredEvent]:
    """Events of seven streams in turn, each from version 11 on."""
    found = []
    for i in range(count):
        payload = bytes([i % 256]) * (i % 50)
        found.append(
            StoredEvent(
                partition=3,
                offset=FIRST + i,
                stream_id=f"request-{i % 7}",
                stream_version=11 + i // 7,
                event_id=f"evt_{i}",
                type="ThingHappened",
                schema_version=2,
                payload=payload,
                payload_sha256=payload_digest(payload),
                metadata=b"metadata",
                fence_epoch=4,
                recorded_at=NOW + timedelta(microseconds=i),
                log_epoch=5,
            )
        )
    return found


@pytest.mark.parametrize("count", [1, BLOCK_EVENTS, BLOCK_EVENTS + 1, 3 * BLOCK_EVENTS + 7])
def test_events_come_back_as_they_were(count: int) -> None:
    written = events(count)
    archive = Archive(write_archive(written, b"before"), "name")
    assert list(archive.events(0, 10**9, log_epoch=5)) == written
    assert archive.manifest.previous_sha256 == b"before"
    middle = FIRST + count // 2
    assert list(archive.events(middle, middle + 2, 5)) == written[count // 2 : count // 2 + 3]


def test_a_stream_comes_back_from_any_version() -> None:
    written = events(3 * BLOCK_EVENTS)
    archive = Archive(write_archive(written, b""), "name")
    of_stream = [event for event in written if event.stream_id == "request-2"]
    for after in (0, 10, 11, 12, 40, 80, 200):
        expected = [event for event in of_stream if event.stream_version > after]
        assert list(archive.stream_events("request-2", after, 5)) == expected
    assert list(archive.stream_events("request-none", 0, 5)) == []


def test_the_same_events_give_the_same_bytes() -> None:
    assert write_archive(events(700), b"x") == write_archive(events(700), b"x")


@pytest.mark.parametrize("place", [0, 30, -20, -10, -1])
def test_an_altered_archive_is_refused(place: int) -> None:
    data = bytearray(write_archive(events(40), b""))
    data[place] ^= 0xFF
    with pytest.raises(CorruptLog, match=r"name|digest"):
        list(Archive(bytes(data), "name").events(0, 10**9, 5))
