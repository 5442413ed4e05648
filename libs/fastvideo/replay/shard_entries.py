"""The entries of a shard's stream: each input, the time that came with it, what was decided.

Reports of workers and elections are in the stream itself, right before what was decided of them;
requests and cancellations are events of other streams that the decision names by id.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, cast, get_args

from fastvideo.errors import CorruptLog
from fastvideo.events.catalog import check_known, payload_of
from fastvideo.events.records import StoredEvent
from fastvideo.scheduling.events import SchedulerDecided
from fastvideo.scheduling.inputs import SchedulerInput, Tick
from fastvideo.scheduling.notes import NOTE_TYPES

_REPORTS: Final = frozenset(cls.__name__ for cls in get_args(SchedulerInput))
_DECIDED: Final = SchedulerDecided.__name__


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One input and what was decided of it."""

    # Of the SchedulerDecided in the shard's stream, and its id.
    version: int
    event_id: str
    # None is an event of another stream, which `decided.input_event_id` names.
    event: SchedulerInput | None
    decided: SchedulerDecided


class EntryReader:
    """Puts inputs and decisions together, from a place between two entries on."""

    def __init__(self) -> None:
        self._report: SchedulerInput | None = None

    def read(self, events: Iterable[StoredEvent]) -> Iterator[ShardEntry]:
        """The entries that end in these events, which follow those of the last call.

        What workers noted beside their reports is passed over. Raises CorruptLog for what a
        newer program wrote: without it nobody knows what the others mean.
        """
        for stored in events:
            if stored.type in _REPORTS:
                self._report = cast(SchedulerInput, payload_of(stored))
            elif stored.type == _DECIDED:
                decided = payload_of(stored)
                assert isinstance(decided, SchedulerDecided)
                event, self._report = self._report, None
                if event is None and not decided.input_event_id:
                    event = Tick()
                yield ShardEntry(stored.stream_version, stored.event_id, event, decided)
            elif stored.type not in NOTE_TYPES:
                check_known(stored)


def missing_input(event_id: str) -> CorruptLog:
    """The error of an input that the log does not have."""
    return CorruptLog(f"input {event_id} is not in the log", reason="INPUT", subject=event_id)
