"""Outputs of attempts that nobody wants any more."""

import threading
from collections import OrderedDict
from typing import Final

from fastvideo.engine.values import Scope
from fastvideo.errors import ResourceExhausted
from fastvideo.scheduling.work import LoopRef

_SCOPES_MAX: Final = 1024
_NAMES_MAX: Final = 64


class CancelledStreams:
    """Names of output streams by attempt; safe to use from any thread."""

    def __init__(self) -> None:
        self._names: OrderedDict[Scope, set[str]] = OrderedDict()
        self._lock = threading.Lock()

    def cancel(self, scope: Scope, name: str) -> None:
        """Note that a stream is not wanted. Raises ResourceExhausted for too many of an attempt."""
        with self._lock:
            names = self._names.setdefault(scope, set())
            if len(names) >= _NAMES_MAX and name not in names:
                raise ResourceExhausted(
                    f"{_NAMES_MAX} streams of {scope[0]} are cancelled, which is the most",
                    subject="streams",
                )
            names.add(name)
            # It may come before the attempt's first loop, so that it is not dropped with it.
            while len(self._names) > _SCOPES_MAX:
                self._names.popitem(last=False)

    def is_cancelled(self, loop: LoopRef, name: str) -> bool:
        """Whether nothing more is to be written of a loop's output."""
        with self._lock:
            return name in self._names.get((loop.request_id, loop.attempt), ())

    def drop(self, scope: Scope) -> None:
        """Forget an attempt that is gone."""
        with self._lock:
            self._names.pop(scope, None)
