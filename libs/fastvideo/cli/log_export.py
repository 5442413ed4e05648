"""What `fastvideo log export` does: the log, or what a filter lets through, as a file.

`.jsonl` has one entry a line, as `log show --json` prints it. `.parquet` has one row an event: the
envelope and what it is about as columns, the payload as JSON. A file appears when it is whole.

An event that cannot be read has its place in the file, with the reason and without a payload, and
is told of.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from fastvideo.cli.connection import Target
from fastvideo.cli.counting import counting_bar
from fastvideo.cli.failures import counted, tell
from fastvideo.cli.log_view import entry_line, entry_record
from fastvideo.cli.report import plain_record, print_json
from fastvideo.cli.running import run
from fastvideo.errors import FailedPrecondition, InvalidField
from fastvideo.events.reading.entries import Entry, UnreadableEvent, payload_fields
from fastvideo.events.reading.filters import EventFilter

PAGE_SIZE: Final = 1_000
# Unreadable events beyond are counted, and not listed; all are in the file.
LISTED_MAX: Final = 100
_ABOUT: Final = (
    "tenant_id",
    "request_id",
    "session_id",
    "program_id",
    "model_id",
    "model_instance_id",
    "loop_id",
    "worker_id",
    "role_id",
    "artifact_id",
    "traceparent",
)


class EntryWriter(Protocol):
    """A file that entries are written to."""

    def write(self, entries: tuple[Entry, ...]) -> None:
        """Add entries, in their order."""
        ...


Opens = Callable[[Path], AbstractContextManager[EntryWriter]]


@dataclass(slots=True)
class Exported:
    """How much was written, and what of it could not be read."""

    events: int = 0
    unreadable_count: int = 0
    # The first of them.
    unreadable: list[UnreadableEvent] = field(default_factory=list)

    def add(self, entries: tuple[Entry, ...]) -> None:
        """Count entries that were written."""
        self.events += len(entries)
        broken = [entry for entry in entries if isinstance(entry, UnreadableEvent)]
        self.unreadable_count += len(broken)
        self.unreadable += broken[: LISTED_MAX - len(self.unreadable)]


def export_log(target: Target, wanted: EventFilter, path: Path, *, as_json: bool) -> bool:
    """Write the entries to a file, and tell how many and which of them could not be read; whether
    all could. Raises InvalidField for another ending of the file's name, FailedPrecondition where
    Parquet cannot be written, and OSError.
    """
    exported = run(_export(target, wanted, path, writer_of(path)))
    if as_json:
        print_json(
            {
                "file": str(path),
                "events": exported.events,
                "unreadable_count": exported.unreadable_count,
                "unreadable": [plain_record(event) for event in exported.unreadable],
            }
        )
    tell(f"{exported.events:,} events in {path}")
    if exported.unreadable_count:
        tell(f"{counted(exported.unreadable_count, 'event')} could not be read:")
    for event in exported.unreadable:
        tell(f"  {entry_line(event)}")
    if exported.unreadable_count > len(exported.unreadable):
        tell("  ... (the file has them all)")
    return not exported.unreadable_count


def writer_of(path: Path) -> Opens:
    """What makes files with the ending of a path."""
    if path.suffix in (".jsonl", ".ndjson"):
        return _json_lines
    if path.suffix == ".parquet":
        return _parquet
    raise InvalidField("FILE", path.name, "a name that ends in .jsonl or .parquet")


def row_of(entry: Entry) -> dict[str, Any]:
    """The columns of an entry, in the order of `COLUMNS`; null what is not known."""
    envelope = {
        "partition": entry.partition,
        "offset": entry.offset,
        "stream_id": entry.stream_id,
        "stream_version": entry.stream_version,
        "event_id": entry.event_id,
        "type": entry.type,
        "schema_version": entry.schema_version,
    }
    if isinstance(entry, UnreadableEvent):
        return {**dict.fromkeys(COLUMNS), **envelope, "unreadable": entry.reason}
    record = entry_record(entry)
    return {
        **dict.fromkeys(COLUMNS),
        **envelope,
        "name": entry.name,
        "recorded_at": entry.recorded_at,
        "occurred_at": entry.metadata.occurred_at,
        **{name: getattr(entry.metadata, name) for name in _ABOUT},
        "versions": json.dumps(dict(entry.metadata.versions), sort_keys=True),
        "log_epoch": entry.log_epoch,
        "payload": json.dumps(record.get(payload_fields()[entry.type], {})),
    }


# Name to Arrow's name of its type.
COLUMNS: Final[Mapping[str, str]] = {
    "partition": "uint32",
    "offset": "uint64",
    "recorded_at": "timestamp",
    "name": "string",
    "type": "string",
    "schema_version": "uint32",
    "stream_id": "string",
    "stream_version": "uint64",
    "event_id": "string",
    **dict.fromkeys(_ABOUT, "string"),
    "occurred_at": "timestamp",
    "versions": "string",
    "log_epoch": "uint64",
    "payload": "string",
    "unreadable": "string",
}


async def _export(
    target: Target,
    wanted: EventFilter,
    path: Path,
    make: Opens,
) -> Exported:
    partial = path.with_name(f".{path.name}.partial")
    exported = Exported()
    try:
        async with target.client() as client:
            heads = (await client.log.stats()).heads
            with make(partial) as writer, counting_bar() as bar:
                task = bar.add_task("exporting", total=sum(heads.values()))
                pages = client.log.pages(wanted, page_size=PAGE_SIZE)
                async with aclosing(pages):
                    async for page in pages:
                        # What comes after the export began is not of it.
                        kept = tuple(e for e in page.entries if e.offset <= heads[e.partition])
                        writer.write(kept)
                        exported.add(kept)
                        bar.update(task, completed=_done(page.next_after, heads))
                        if all(page.next_after[p] >= head for p, head in heads.items()):
                            break
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return exported


def _done(position: Mapping[int, int], heads: Mapping[int, int]) -> int:
    return sum(min(offset, heads.get(partition, 0)) for partition, offset in position.items())


class _JsonLines:
    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            self._file.write(json.dumps(entry_record(entry)) + "\n")


@contextmanager
def _json_lines(path: Path) -> Iterator[EntryWriter]:
    with path.open("w", encoding="utf-8") as file:
        yield _JsonLines(file)


class _Parquet:
    def __init__(self, arrow: Any, writer: Any, schema: Any) -> None:
        self._arrow = arrow
        self._writer = writer
        self._schema = schema

    def write(self, entries: tuple[Entry, ...]) -> None:
        if entries:
            rows = [row_of(entry) for entry in entries]
            self._writer.write_batch(self._arrow.RecordBatch.from_pylist(rows, schema=self._schema))


@contextmanager
def _parquet(path: Path) -> Iterator[EntryWriter]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise FailedPrecondition(
            "Parquet needs pyarrow: pip install 'fastvideo-v2[local]', or export to .jsonl",
            reason="NOT_INSTALLED",
            subject="pyarrow",
        ) from error
    types = {"timestamp": pyarrow.timestamp("us", tz="UTC")}
    schema = pyarrow.schema(
        [(name, types.get(kind) or getattr(pyarrow, kind)()) for name, kind in COLUMNS.items()]
    )
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        yield _Parquet(pyarrow, writer, schema)
