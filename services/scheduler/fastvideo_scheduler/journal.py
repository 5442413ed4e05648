"""What the scheduler writes: each input with its decisions, and what requests' streams say.

One command holds an input that is not in the log yet, the SchedulerDecided, and the events of
the requests' streams, so that none is there without the others. Commands are committed in the
order of the decisions, in groups, behind the scheduler's back. That is early enough for
terminal events too: users learn of them from the log and from nowhere else.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final, Protocol

from fastvideo import wire
from fastvideo.clock import milliseconds
from fastvideo.events.appender import Appender
from fastvideo.events.catalog import new_event
from fastvideo.events.records import AppendCommand, Fence, NewEvent, StreamAppend
from fastvideo.ids import new_id
from fastvideo.requests.state import stream_of
from fastvideo.scheduling.effects import request_event
from fastvideo.scheduling.events import Decision, SchedulerDecided
from fastvideo.scheduling.known_weights import model_stream
from fastvideo.scheduling.notes import fitting
from fastvideo.scheduling.stream import shard_stream
from fastvideo.scheduling.traces import TraceNote, WeightsChanged
from fastvideo.telemetry.logging import get_logger
from fastvideo_scheduler.provenance import Provenance, Report, Requests

_LOG: Final = get_logger(__name__)

# Noted and not yet handed to the appender, which has a bound of its own.
NOTES_MAX: Final = 1_000


class LiveRequests(Requests, Protocol):
    """What the journal asks about requests, and tells."""

    def written(self, decisions: Sequence[Decision]) -> None:
        """The decisions are handed over; what they ended can be forgotten."""
        ...


@dataclass(frozen=True, slots=True)
class _Note:
    decisions: Sequence[Decision]
    now: datetime
    report: Report | None
    event_id: str
    # What the worker noted beside its report; each is an event.
    traces: tuple[TraceNote, ...]
    # What the report changes of models' weights; each goes to its model's stream.
    weights: tuple[WeightsChanged, ...]
    # The version of the shard's stream with it, and what is called once it is committed.
    version: int
    committed: Callable[[], None] | None


class Journal:
    """Writes one leader's term; `run` must run beside it."""

    def __init__(
        self, appender: Appender, shard: str, fence: Fence, requests: LiveRequests
    ) -> None:
        self._appender = appender
        self._stream = shard_stream(shard)
        self._fence = fence
        self._requests = requests
        self.provenance = Provenance(requests)
        # The version of the shard's stream with all that is noted, and as it is committed.
        self.version = 0
        self._committed = 0
        self._committed_more = asyncio.Event()
        self._notes: deque[_Note] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def begin(self, version: int) -> None:
        """The shard's stream has this version; nothing may be noted before."""
        self.version = self._committed = version

    async def until_committed(self, version: int) -> None:
        """Wait until the log has all up to that version of the shard's stream."""
        while self._committed < version:
            self._committed_more.clear()
            await self._committed_more.wait()

    async def room(self) -> None:
        """Wait until there is room for another note."""
        await self._room.wait()

    def note(
        self,
        decisions: Sequence[Decision],
        now: datetime,
        *,
        report: Report | None = None,
        event_id: str = "",
        traces: Sequence[TraceNote] = (),
        weights: Sequence[WeightsChanged] = (),
        committed: Callable[[], None] | None = None,
    ) -> None:
        """Keep an input and its decisions to be written; `committed` is called when they are.

        `report` is an input that the log does not have yet, `event_id` names one that it has;
        `traces` are what came with the report, each of which becomes an event of its own, and
        `weights` what it changes of models, for their streams.
        What came of an input is kept also when it is nothing, since its place in the order
        counts; a tick that led to nothing leaves no trace.
        """
        if report is None and not event_id and not decisions:
            return
        written = tuple(piece for trace in traces for piece in _fitting(trace))
        # The decisions, and before them an input that is not in the log and its traces.
        self.version += 1 if report is None else 2 + len(written)
        self._notes.append(
            _Note(
                decisions,
                now,
                report,
                event_id,
                written,
                tuple(weights),
                self.version,
                committed,
            )
        )
        if len(self._notes) >= NOTES_MAX:
            self._room.clear()
        self._arrived.set()

    async def run(self) -> None:
        """Hand notes to the appender, for ever.

        Raises Fenced once the term is over, Unavailable when the log stayed away too long.
        """
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            # A moment later, so that commands to workers go out before this costs time.
            await asyncio.sleep(0)
            await self.settle()

    async def settle(self) -> None:
        """Hand over all that is noted."""
        while self._notes:
            note = self._notes[0]
            await self._appender.enqueue(self._command(note), partial(self._settled, note))
            # Only now, so that an ending that interrupts the wait loses nothing.
            self._notes.popleft()
            self._room.set()
            self._requests.written(note.decisions)

    def _settled(self, note: _Note) -> None:
        """The log has the note."""
        self._committed = note.version
        self._committed_more.set()
        if note.committed is not None:
            note.committed()

    def _command(self, note: _Note) -> AppendCommand:
        event_id, now = note.event_id, note.now
        shard_events = []
        if note.report is None:
            about = self.provenance.of_decisions(note.decisions, now)
        else:
            event_id = _event_id(now)
            about = self.provenance.of_report(note.report, now)
            shard_events.append(new_event(event_id, note.report, about))
            for trace in note.traces:
                told = replace(self.provenance.of_note(trace, about, now), causation_id=event_id)
                shard_events.append(new_event(_event_id(now), trace, told))
            self.provenance.take(note.report, now)
        decided = SchedulerDecided(
            input_event_id=event_id,
            at=now,
            decisions=tuple(note.decisions),
            epoch=self._fence.epoch,
        )
        about = self.provenance.beside(about, note.decisions, now)
        about = replace(about, causation_id=event_id)
        shard_events.append(new_event(_event_id(now), decided, about))
        streams = [StreamAppend(self._stream, tuple(shard_events))]
        for request_id, events in self._request_events(note.decisions, event_id, now).items():
            streams.append(StreamAppend(stream_of(request_id), tuple(events)))
        streams += self._model_streams(note.weights, event_id, now)
        return AppendCommand(streams=tuple(streams), fence=self._fence)

    def _model_streams(
        self, weights: Sequence[WeightsChanged], causation_id: str, now: datetime
    ) -> list[StreamAppend]:
        events: dict[str, list[NewEvent]] = {}
        for change in weights:
            about = replace(self.provenance.of_weights(change, now), causation_id=causation_id)
            event = new_event(_event_id(now), change, about)
            events.setdefault(model_stream(change.model_id), []).append(event)
        return [StreamAppend(stream, tuple(told)) for stream, told in events.items()]

    def _request_events(
        self, decisions: Sequence[Decision], causation_id: str, now: datetime
    ) -> dict[str, list[NewEvent]]:
        events: dict[str, list[NewEvent]] = {}
        for decision in decisions:
            seen = request_event(decision)
            if seen is not None:
                request_id, payload = seen
                about = self.provenance.of_decision(request_id, decision, now)
                about = replace(about, causation_id=causation_id)
                events.setdefault(request_id, []).append(new_event(_event_id(now), payload, about))
            self.provenance.take(decision, now)
        return events


def _fitting(trace: TraceNote) -> tuple[TraceNote, ...]:
    pieces = fitting(trace, lambda note: len(wire.encode(note)))
    if pieces != (trace,):
        _LOG.warning("a note is cut", type=type(trace).__name__, events=len(pieces))
    return pieces


def _event_id(now: datetime) -> str:
    return new_id("evt", milliseconds(now))
