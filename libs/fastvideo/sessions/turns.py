"""Who writes a session: one at a time in this process, and again when another was first."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from fastvideo.errors import Conflict

T = TypeVar("T")

# Other processes write a session too; each try sees a newer version.
TRIES_MAX: Final = 30
PAUSE_FIRST_S: Final = 0.001
PAUSE_S_MAX: Final = 0.05


class SessionTurns:
    """Gives those who write one session their turns."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, session_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """What an attempt comes to: it reads the session, decides, and appends at that version.

        Raises what it raises, and Conflict when others were first each time.
        """
        pause_s = PAUSE_FIRST_S
        async with self._locks.setdefault(session_id, asyncio.Lock()):
            for _ in range(TRIES_MAX - 1):
                try:
                    return await attempt()
                except Conflict:
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, PAUSE_S_MAX)
            return await attempt()
