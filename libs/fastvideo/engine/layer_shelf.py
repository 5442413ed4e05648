"""Blobs of layers on their way to the store, beside compute: no step waits for them."""

import hashlib
import queue
import threading
from typing import Final

from fastvideo.engine.sink import BlobShelf
from fastvideo.errors import FastVideoError
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

WAITING_MAX: Final = 512
"""Blobs that may wait; what comes then is dropped."""


class LayerShelf:
    """Keeps blobs by their digest, each stored a little later; safe to use from any thread.

    What cannot be stored is logged and lost: a trace is no result.
    """

    def __init__(self, shelf: BlobShelf, waiting_max: int = WAITING_MAX) -> None:
        self._shelf = shelf
        self._waiting: queue.Queue[bytes] = queue.Queue(waiting_max)
        self._lock = threading.Lock()
        self._stored = threading.Condition(self._lock)
        self._count = 0
        self._thread: threading.Thread | None = None

    def keep(self, data: bytes) -> str:
        """The SHA-256 by which the bytes will be found; empty when too many wait."""
        with self._lock:
            try:
                self._waiting.put_nowait(data)
            except queue.Full:
                _LOG.warning("layers are dropped", waiting_max=self._waiting.maxsize)
                return ""
            self._count += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._store, name="layers", daemon=True)
                self._thread.start()
        return hashlib.sha256(data).hexdigest()

    def wait_stored(self, timeout_s: float) -> bool:
        """Whether all that was given was stored, or lost, within the time."""
        with self._stored:
            return self._stored.wait_for(lambda: not self._count, timeout_s)

    def _store(self) -> None:
        while True:
            data = self._waiting.get()
            try:
                self._shelf.put_blob(data)
            except FastVideoError as error:
                _LOG.warning("layers are lost", reason=error.reason, error=error.message)
            except Exception:  # noqa: BLE001 - logged with its stack
                # The thread outlives whatever a store does.
                _LOG.exception("layers are lost")
            with self._stored:
                self._count -= 1
                self._stored.notify_all()
