"""How many commands a worker takes before it has answered others."""

from collections import deque
from collections.abc import Hashable, Iterator

from fastvideo.scheduling.commands import ExecuteBatch, PrepareLoop, ReleaseLoops
from fastvideo.scheduling.effects import WorkerCommand
from fastvideo.scheduling.events import (
    BatchExecuted,
    LoopFailed,
    LoopPrepared,
    WorkerAttached,
    WorkerReattached,
)


class Credits:
    """Holds back commands to prepare and to run while the worker has as many as it takes.

    What asks for no room (release, yield, snapshot) goes at once.
    """

    def __init__(self) -> None:
        # None while the worker has not said a number.
        self._limit: int | None = None
        self._given: dict[Hashable, None] = {}
        self._held: deque[PrepareLoop | ExecuteBatch] = deque()

    def give(self, command: WorkerCommand) -> Iterator[WorkerCommand]:
        """What may be sent now that this command is to be."""
        if isinstance(command, PrepareLoop | ExecuteBatch):
            self._held.append(command)
            yield from self._ready()
            return
        if isinstance(command, ReleaseLoops):
            # What was not sent need not be freed.
            self._held = deque(held for held in self._held if not _covers(command, held))
            for key in [key for key in self._given if _is_of(command, key)]:
                del self._given[key]
        yield command
        yield from self._ready()

    def take_back(self, event: object) -> Iterator[WorkerCommand]:
        """What may be sent now that the worker has said this."""
        match event:
            case WorkerAttached():
                self._limit = event.credits or None
                self._given.clear()
            case WorkerReattached():
                preparing = [loop.loop for loop in event.loops if loop.preparing]
                batches = [("batch", name) for name in event.batch_ids]
                self._given = dict.fromkeys([*preparing, *batches])
            case LoopPrepared():
                self._given.pop(event.plan.loop, None)
            case LoopFailed():
                self._given.pop(event.loop, None)
            case BatchExecuted():
                self._given.pop(("batch", event.batch_id), None)
        yield from self._ready()

    def limit(self, credits: int) -> None:
        """What the worker takes at once; 0 when it did not say."""
        self._limit = credits or None

    def _ready(self) -> Iterator[WorkerCommand]:
        while self._held and (self._limit is None or len(self._given) < self._limit):
            command = self._held.popleft()
            self._given[_key(command)] = None
            yield command


def _key(command: PrepareLoop | ExecuteBatch) -> Hashable:
    return command.loop if isinstance(command, PrepareLoop) else ("batch", command.batch_id)


def _covers(command: ReleaseLoops, held: PrepareLoop | ExecuteBatch) -> bool:
    return isinstance(held, PrepareLoop) and _is_of(command, held.loop)


def _is_of(command: ReleaseLoops, key: Hashable) -> bool:
    """Whether a loop belongs to what is released."""
    attempt = (getattr(key, "request_id", ""), getattr(key, "attempt", 0))
    return attempt == (command.request_id, command.attempt) and (
        not command.node_ids or getattr(key, "node_id", "") in command.node_ids
    )
