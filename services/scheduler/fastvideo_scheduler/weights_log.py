"""What the log knows of models' weights, read once a term and kept up to date with it."""

import asyncio
from collections.abc import Iterable

from fastvideo.events.catalog import payload_of
from fastvideo.events.store import EventStore
from fastvideo.scheduling.events import WorkerAttached
from fastvideo.scheduling.known_weights import KnownWeights, model_stream
from fastvideo.scheduling.traces import WeightsChanged

_READ_MAX = 1_000


class WeightsLog:
    """Says what an attached worker changes; each change is told once."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._known = KnownWeights()
        self._read: set[str] = set()
        # Folding a stream twice would undo what was replaced, and workers attach together.
        self._reading = asyncio.Lock()

    async def read(self, model_ids: Iterable[str]) -> None:
        """Fold the streams of these models, unless they were read before; each is folded once,
        however many ask at a time."""
        async with self._reading:
            for model_id in sorted(set(model_ids) - self._read):
                await self._fold(model_id)
                self._read.add(model_id)

    def take(self, attached: WorkerAttached) -> tuple[WeightsChanged, ...]:
        """What a worker's models change. The caller writes it, and nobody is told it again."""
        changes = self._known.changes(attached)
        for change in changes:
            self._known.evolve(change)
        return changes

    async def _fold(self, model_id: str) -> None:
        version = 0
        stream = model_stream(model_id)
        while events := await self._store.read_stream(stream, version, _READ_MAX):
            for stored in events:
                if stored.type == WeightsChanged.__name__:
                    payload = payload_of(stored)
                    assert isinstance(payload, WeightsChanged)
                    self._known.evolve(payload)
            version = events[-1].stream_version
