"""Append although the store may fail in the middle: find out what happened, then go on.

After `Unavailable` nobody knows whether a command was committed. It is safe to try again: an
idempotency key answers by itself, and a command without one is recognised by its event ids,
which are in the log if and only if the whole command is.
"""

import asyncio
import time

from fastvideo.errors import AlreadyExists, Conflict, Fenced, Unavailable
from fastvideo.events.records import AppendCommand, AppendResult
from fastvideo.events.store import EventLog

_BACKOFF_S_MIN = 0.02
_BACKOFF_S_MAX = 0.5


async def append_surely(
    store: EventLog,
    command: AppendCommand,
    *,
    retry_for_s: float = 30.0,
    uncertain: bool = False,
) -> AppendResult:
    """Append a command once, across failures of the store.

    `uncertain` says that an earlier attempt ended without an answer. A result found by event ids
    has `repeated` set and the positions of the first attempt. Raises as `EventLog.append` does;
    Unavailable when the store is still away after `retry_for_s` seconds.
    """
    deadline = time.monotonic() + retry_for_s
    backoff_s = _BACKOFF_S_MIN
    while True:
        try:
            return await _attempt(store, command, uncertain)
        except Unavailable:
            uncertain = True
            if time.monotonic() + backoff_s > deadline:
                raise
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _BACKOFF_S_MAX)


async def _attempt(store: EventLog, command: AppendCommand, uncertain: bool) -> AppendResult:
    try:
        return await store.append(command)
    except (AlreadyExists, Conflict, Fenced):
        # What refuses this attempt may be the first one's own success.
        found = await _find(store, command) if uncertain else None
        if found is None:
            raise
        return found


async def _find(store: EventLog, command: AppendCommand) -> AppendResult | None:
    positions = []
    for append in command.streams:
        for event in append.events:
            position = await store.position_of(event.event_id)
            if position is None:
                return None
            positions.append(position)
    return AppendResult(tuple(positions), True, command.result) if positions else None
