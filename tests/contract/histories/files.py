"""Histories as files: one stored event a line."""

import base64
import gzip
import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from fastvideo.events.records import StoredEvent, payload_digest

FOLDER = Path(__file__).parent
NAMES = tuple(sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz")))

_DERIVED = {"payload_sha256", "log_epoch"}
_BYTES = {"payload", "metadata"}


def read(name: str) -> list[StoredEvent]:
    """The events of a committed history, in the log's order."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt") as lines:
        return [_event(json.loads(line)) for line in lines]


def write(path: Path, events: Iterable[StoredEvent]) -> None:
    """Write a history, the same bytes for the same events."""
    lines = "".join(json.dumps(_record(event), sort_keys=True) + "\n" for event in events)
    path.write_bytes(gzip.compress(lines.encode(), mtime=0))


def _event(record: dict[str, Any]) -> StoredEvent:
    payload = base64.b64decode(record["payload"])
    return StoredEvent(
        **{
            **record,
            "payload": payload,
            "metadata": base64.b64decode(record["metadata"]),
            "recorded_at": datetime.fromisoformat(record["recorded_at"]),
            "payload_sha256": payload_digest(payload),
            "log_epoch": 1,
        }
    )


def _record(event: StoredEvent) -> dict[str, Any]:
    record = {name: value for name, value in event._asdict().items() if name not in _DERIVED}
    for name in _BYTES:
        record[name] = base64.b64encode(record[name]).decode()
    return {**record, "recorded_at": event.recorded_at.isoformat()}
