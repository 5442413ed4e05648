"""The entries of a shard's stream: each input, the time that came with it, what was decided.

Reports of workers and elections are in the stream itself, right before what was decided of them;
requests and cancellations are events of other streams that the decision names by id.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, get_args

from fastvideo.errors import CorruptLog
from fastvideo.events.catalog import payload_of
from fastvideo.events.records import StoredEvent
from fastvideo.scheduling.events import SchedulerDecided
from fastvideo.scheduling.inputs import SchedulerInput, Tick

Resolve = Callable[[str], Awaitable[SchedulerInput]]
"""The input that an event of another stream is, by its id."""

_REPORTS: Final = frozenset(cls.__name__ for cls in get_args(SchedulerInput))
_DECIDED: Final = SchedulerDecided.__name__


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One input and what was decided of it."""

    # Of the SchedulerDecided in the shard's stream, and its id.
    version: int
    event_id: str
    # Of the epoch that wrote it.
    epoch: int
    event: SchedulerInput
    decided: SchedulerDecided


class EntryReader:
    """Puts inputs and decisions together, from a place between two entries on.

    What workers noted beside their reports is passed over.
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._report: SchedulerInput | None = None

    async def read(self, events: Iterable[StoredEvent]) -> AsyncIterator[ShardEntry]:
        """The entries that end in these events, which follow those of the last call.

        Raises CorruptLog for what a newer program wrote, or an input that is not in the log.
        """
        for stored in events:
            if stored.type in _REPORTS:
                self._report = payload_of(stored)  # type: ignore[assignment]
            elif stored.type == _DECIDED:
                decided = payload_of(stored)
                assert isinstance(decided, SchedulerDecided)
                event, self._report = self._report, None
                if event is None and decided.input_event_id:
                    event = await self._resolve(decided.input_event_id)
                yield ShardEntry(
                    stored.stream_version,
                    stored.event_id,
                    decided.epoch,
                    event or Tick(),
                    decided,
                )


def missing(event_id: str) -> CorruptLog:
    """The error of an input that is not in the log."""
    return CorruptLog(f"input {event_id} is not in the log", reason="INPUT", subject=event_id)
