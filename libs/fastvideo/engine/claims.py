"""Claims: a request's resident memory is reserved whole before its first loop, or it waits.

Loops hold memory while they wait for more: a request that was let in with too little could stop
in the middle, and several could stop one another. One that holds its claim never has to ask.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from fastvideo.errors import Cancelled, ResourceExhausted
from fastvideo.memory.pools import MemoryPools, MemoryTag, OutOfMemory
from fastvideo.memory.pressure import Evictions

_WAITING_MAX: Final = 1024
_TAG: Final = MemoryTag.ACTIVATIONS

Granted = Future[None]
"""Done when the claim is held; fails with what ended the waiting, such as Cancelled."""


class Claims:
    """The claims of requests' attempts, by scope; first come, first served; from any thread."""

    def __init__(
        self,
        pools: MemoryPools,
        limit_bytes: int,
        on_evicted: Callable[[str, Evictions], None] = lambda scope, evicted: None,
    ) -> None:
        self._pools = pools
        # Told what was evicted for which scope's claim.
        self._on_evicted = on_evicted
        # All claims together; the rest of the pool is for units that run.
        self._limit_bytes = limit_bytes
        self._held: dict[str, int] = {}
        self._waiting: OrderedDict[str, tuple[int, Granted]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """Requests that wait for memory."""
        return len(self._waiting)

    def holds(self, scope: str) -> bool:
        """Whether a scope has its claim."""
        with self._lock:
            return scope in self._held

    def take(self, scope: str, size_bytes: int) -> Granted:
        """Claim so much for a scope, now or when others have given back; once a scope.

        Raises OutOfMemory when it can never be had, ResourceExhausted when too many wait.
        """
        granted = Granted()
        with self._lock:
            if scope in self._held:
                granted.set_result(None)
                return granted
            if scope in self._waiting:
                return self._waiting[scope][1]
            if size_bytes > self._limit_bytes:
                raise OutOfMemory(_TAG, size_bytes, self._limit_bytes, owner=scope)
            if not self._waiting and self._try(scope, size_bytes):
                granted.set_result(None)
                return granted
            if len(self._waiting) >= _WAITING_MAX:
                raise ResourceExhausted(
                    f"{_WAITING_MAX} requests wait for memory, which is the most", subject=_TAG
                )
            self._waiting[scope] = (size_bytes, granted)
        return granted

    def release(self, scope: str) -> int:
        """Give a claim back, or give it up; returns the most that its scope held."""
        with self._lock:
            peak = self._drop(scope)
            _, given_up = self._waiting.pop(scope, (0, None))
            served = self._serve()
        if given_up is not None:
            given_up.set_exception(Cancelled(f"{scope} was released", reason="LOOP_RELEASED"))
        for future, error in served:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        return peak

    def give_up(self, error: Exception) -> None:
        """Let nobody wait any longer: what waits fails with the error."""
        with self._lock:
            waiting, self._waiting = self._waiting, OrderedDict()
        for _, future in waiting.values():
            future.set_exception(error)

    def scopes(self) -> tuple[str, ...]:
        """Every scope that holds a claim or waits for one."""
        with self._lock:
            return (*self._held, *self._waiting)

    def _drop(self, scope: str) -> int:
        if self._held.pop(scope, None) is None:
            return 0
        return self._pools.unclaim(_TAG, scope)

    def _serve(self) -> list[tuple[Granted, OutOfMemory | None]]:
        """The waiting ones that wait no longer, in order: nobody overtakes a large one."""
        served: list[tuple[Granted, OutOfMemory | None]] = []
        while self._waiting:
            scope, (size_bytes, future) = next(iter(self._waiting.items()))
            try:
                if not self._try(scope, size_bytes):
                    break
                served.append((future, None))
            except OutOfMemory as error:
                served.append((future, error))
            del self._waiting[scope]
        return served

    def _try(self, scope: str, size_bytes: int) -> bool:
        """Whether a claim is held now. Raises OutOfMemory when nobody else could give back."""
        if sum(self._held.values()) + size_bytes > self._limit_bytes:
            return False
        try:
            self._on_evicted(scope, self._pools.claim(_TAG, scope, size_bytes))
        except OutOfMemory:
            if not self._held:
                raise
            return False
        self._held[scope] = size_bytes
        return True
