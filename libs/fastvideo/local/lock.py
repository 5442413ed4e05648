"""One supervisor a data folder: a file lock that the kernel drops when its holder dies."""

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from fastvideo.local.errors import DataUnreachable, StackRunning
from fastvideo.local.folder import DataFolder

# A look at the lock (`holder`) takes it for an instant; longer than this, it is a supervisor.
_RETRY_S = 0.3


class StackLock:
    """The right to run a stack in a data folder, held until closed or until the process ends."""

    def __init__(self, folder: DataFolder) -> None:
        """Take the lock; raises StackRunning, which names the pid that has it."""
        self._fd = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + _RETRY_S
        while not _try_lock(self._fd, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                pid = _recorded_pid(folder.lock)
                os.close(self._fd)
                raise StackRunning(
                    f"a stack is running already in {folder.root} (pid {pid});"
                    " see `fastvideo status`, stop it with `fastvideo down`",
                    subject=str(folder.root),
                    attributes={"pid": str(pid)},
                )
            time.sleep(0.02)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Give the lock back."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def holder(folder: DataFolder) -> int | None:
    """The pid of the supervisor that runs in the folder, None when none does."""
    try:
        fd = os.open(folder.lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise DataUnreachable(
            f"the data folder {folder.root} belongs to another user",
            subject=str(folder.root),
        ) from error
    try:
        return None if _try_lock(fd, fcntl.LOCK_SH) else _recorded_pid(folder.lock)
    finally:
        os.close(fd)


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _recorded_pid(path: Path) -> int:
    text = path.read_text().strip()
    return int(text) if text.isdigit() else 0
