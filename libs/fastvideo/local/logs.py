"""Output of the parts: one bounded file each.

A part writes straight into its file (opened for appending), so that nothing is lost and nothing
blocks when the supervisor dies. A file over the limit is copied to `.1` and emptied; a line that
is written in that instant may be lost.
"""

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

LOG_BYTES_MAX = 10 * 1024 * 1024
_TAIL_BYTES_MAX = 256 * 1024


def open_log(path: Path, bytes_max: int = LOG_BYTES_MAX) -> int:
    """A file descriptor to append to; the file is rotated first if it is over the limit."""
    cap_log(path, bytes_max)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def cap_log(path: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
    """Move the content of a file that is over the limit to `<name>.1`."""
    try:
        if path.stat().st_size <= bytes_max:
            return
    except FileNotFoundError:
        return
    older = path.with_name(f"{path.name}.1")
    shutil.copyfile(path, older)
    older.chmod(0o600)
    os.truncate(path, 0)


def tail(path: Path, lines: int, since: int = 0, until: int | None = None) -> tuple[str, ...]:
    """The last lines of a file between two offsets; none when it does not exist."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            size = size if until is None else min(size, until)
            # The file was emptied in the meantime: all of it is newer than the offset.
            start = max(since if since <= size else 0, size - _TAIL_BYTES_MAX)
            file.seek(start)
            text = file.read(size - start).decode(errors="replace")
    except FileNotFoundError:
        return ()
    return tuple(text.splitlines()[-lines:]) if lines else ()


def lines_end(path: Path) -> int:
    """The offset behind the last whole line of a file: `tail` until there, `follow` from there."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = file.seek(max(0, size - _TAIL_BYTES_MAX))
            return start + file.read(size - start).rfind(b"\n") + 1
    except FileNotFoundError:
        return 0


def follow(
    paths: Mapping[str, Path], offsets: Mapping[str, int], poll_s: float = 0.2
) -> Iterator[tuple[str, str]]:
    """Yield (name, line) as lines are written behind the files' offsets, without end.

    A file that is emptied or not there yet is read from its start.
    """
    offsets = dict(offsets)
    while True:
        quiet = True
        for name, path in paths.items():
            size = _size(path)
            if size < offsets[name]:
                offsets[name] = 0
            if size == offsets[name]:
                continue
            with path.open("rb") as file:
                file.seek(offsets[name])
                fresh = file.read(_TAIL_BYTES_MAX)
            # An unfinished line waits for its end, unless it is too long to be one.
            whole = fresh if len(fresh) == _TAIL_BYTES_MAX else fresh[: fresh.rfind(b"\n") + 1]
            offsets[name] += len(whole)
            for line in whole.decode(errors="replace").splitlines():
                quiet = False
                yield name, line
        if quiet:
            time.sleep(poll_s)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
