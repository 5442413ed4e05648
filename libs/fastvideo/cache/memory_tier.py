"""A tier in this process's memory, for one process that serves alone."""

import threading
from collections import OrderedDict


class MemoryTier:
    """Bytes by digest within a budget, the oldest out first."""

    name = "worker"

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._entries: OrderedDict[str, bytes] = OrderedDict()
        self._used_bytes = 0
        self._lock = threading.Lock()

    def get(self, digest: str) -> bytes | None:
        """The bytes under a digest."""
        with self._lock:
            data = self._entries.get(digest)
            if data is not None:
                self._entries.move_to_end(digest)
            return data

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._entries.clear()
            self._used_bytes = 0

    def put(self, digest: str, data: bytes) -> bool:
        """Keep bytes; whether they are kept: those above the whole budget are not."""
        if len(data) > self._budget_bytes:
            return False
        with self._lock:
            self._used_bytes += len(data) - len(self._entries.pop(digest, b""))
            self._entries[digest] = data
            while self._used_bytes > self._budget_bytes:
                _, oldest = self._entries.popitem(last=False)
                self._used_bytes -= len(oldest)
        return True
