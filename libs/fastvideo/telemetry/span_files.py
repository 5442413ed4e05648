"""Spans in files, for a stack without a trace store: OTLP/JSON, a line for each export.

Every process has a file of its own name, and the one before it; when the first is full it takes
the place of the second. Several processes of one name may write at once.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from fastvideo.telemetry.spans import SpanRecord, otlp_line, spans_of_otlp

FILE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of each of a process's two files: some hundreds of requests."""

_SUFFIX: Final = ".jsonl"
_BEFORE: Final = ".1"
_MODE: Final = 0o600


class SpanFiles(SpanExporter):
    """Appends to the files of one name."""

    def __init__(self, folder: Path, name: str, bytes_max: int = FILE_BYTES_MAX) -> None:
        self._file = folder / f"{name}{_SUFFIX}"
        self._bytes_max = bytes_max
        self._closed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write the spans; a folder that is gone or full costs them."""
        if self._closed or not spans:
            return SpanExportResult.SUCCESS
        line = otlp_line(dict(spans[0].resource.attributes), spans).encode() + b"\n"
        try:
            self._append(line)
        except OSError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Write no more."""
        self._closed = True

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here."""
        return True

    def _append(self, line: bytes) -> None:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(self._file) as file:
            file.write(line)
            file.flush()
            if file.tell() >= self._bytes_max:
                self._file.replace(self._file.with_name(self._file.name + _BEFORE))


@contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """The file of that name, to append to, by nobody else meanwhile."""
    while True:
        with open(path, "ab", opener=lambda name, flags: os.open(name, flags, _MODE)) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Another process may have put it aside before its turn came.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield file
                return


def read_spans(folder: Path, wanted: Callable[[str], bool]) -> list[SpanRecord]:
    """The spans of all lines that are wanted, in the order of their starts.

    A line that was cut short, as by a full disk, is passed over.
    """
    import json

    found: list[SpanRecord] = []
    for line in _lines(folder):
        if not wanted(line):
            continue
        try:
            found += spans_of_otlp(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    unique = {(span.trace_id, span.span_id): span for span in found}
    return sorted(unique.values(), key=lambda span: (span.start_ns, span.span_id))


def _lines(folder: Path) -> Iterator[str]:
    """The lines of all files.

    A file may be put aside at any moment: it is then where the one before it was, which is looked
    for last.
    """
    files = {path.with_suffix("") for path in folder.glob(f"*{_SUFFIX}{_BEFORE}")}
    files |= set(folder.glob(f"*{_SUFFIX}"))
    for file in sorted(files):
        for path in (file, file.with_name(file.name + _BEFORE)):
            with (
                suppress(FileNotFoundError),
                open(path, encoding="utf-8", errors="replace") as lines,
            ):
                yield from lines
