"""The lines in which requests wait for a place, one for each model, card and kind of place."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, NamedTuple

from fastvideo.scheduling.ready import Rank


class LineKey(NamedTuple):
    """Whose places a line waits for."""

    model_id: str
    card_digest: str
    # Pool, mesh and places kept free, as the class of service has it.
    place: str


class Waiting(NamedTuple):
    """A request's entry in a line."""

    rank: Rank
    request_id: str


@dataclass(slots=True)
class Lines:
    """All lines, each in order, and what is still to be told to who waits in them."""

    # Choosing works it off; taking in its choices does not.
    INCIDENTAL: ClassVar = frozenset({"stale"})

    by_model: dict[str, dict[LineKey, list[Waiting]]] = field(default_factory=dict)
    # Requests that nobody has told yet that they wait.
    untold: dict[str, None] = field(default_factory=dict)
    # Lines in which places changed since they were told, and when each was told last.
    stale: dict[LineKey, None] = field(default_factory=dict)
    told_at: dict[LineKey, float] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many requests wait."""
        return sum(len(line) for lines in self.by_model.values() for line in lines.values())

    def add(self, key: LineKey, rank: Rank, request_id: str) -> None:
        """Let a request wait."""
        line = self.by_model.setdefault(key.model_id, {}).setdefault(key, [])
        insort(line, Waiting(rank, request_id))
        self.untold[request_id] = None
        if line[-1].request_id != request_id:
            self.stale[key] = None

    def remove(self, key: LineKey, rank: Rank, request_id: str) -> None:
        """It waits no longer, if it did."""
        self.untold.pop(request_id, None)
        lines = self.by_model.get(key.model_id, {})
        line = lines.get(key, [])
        index = bisect_left(line, Waiting(rank, request_id))
        if index < len(line) and line[index].request_id == request_id:
            del line[index]
            self.stale[key] = None
            if not line:
                del lines[key]
                self.stale.pop(key, None)
                self.told_at.pop(key, None)

    def position(self, key: LineKey, rank: Rank, request_id: str) -> int:
        """Its place in its line; 1 is next."""
        return bisect_left(self.line(key), Waiting(rank, request_id)) + 1

    def line(self, key: LineKey) -> Sequence[Waiting]:
        """Who waits there, in order."""
        return self.by_model.get(key.model_id, {}).get(key, [])

    def of(self, models: Iterable[str]) -> Iterator[tuple[LineKey, Sequence[Waiting]]]:
        """The lines of these models."""
        for model_id in models:
            yield from self.by_model.get(model_id, {}).items()

    def news_due(self, interval_s: float) -> float:
        """When the next line is to be told, in Unix seconds; infinite when none is."""
        return min((self.told_at.get(key, -inf) + interval_s for key in self.stale), default=inf)
