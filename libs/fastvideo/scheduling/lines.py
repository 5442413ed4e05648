"""The lines in which requests wait for a place, one for each tenant and each kind of place."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, NamedTuple

from fastvideo.scheduling.fairness import FairShares
from fastvideo.scheduling.ready import Rank


class PlaceKind(NamedTuple):
    """Whose places a request waits for."""

    model_id: str
    card_digest: str
    # Pool, mesh and places kept free, as the class of service has it.
    place: str

    @property
    def bound_to(self) -> tuple[str, str, str]:
        """Model, card, and pool and mesh; kinds that are bound alike wait for the same places."""
        return self.model_id, self.card_digest, self.place.rpartition("/")[0]


class Waiting(NamedTuple):
    """A request's entry in its tenant's line."""

    rank: Rank
    request_id: str


Front = tuple[int, int, float, float, int]
"""Where the first of a line stands among those of other tenants; the smallest is next."""


@dataclass(slots=True)
class Lines:
    """All lines, each in order, and what is still to be told to who waits in them."""

    # Choosing works it off; taking in its choices does not.
    INCIDENTAL: ClassVar = frozenset({"stale"})

    # Model to kinds of places to tenants; no line is empty.
    by_model: dict[str, dict[PlaceKind, dict[str, list[Waiting]]]] = field(default_factory=dict)
    # Who waits for each kind of place, in the order in which they came, with a number that rises
    # over all kinds; none is empty.
    entered: dict[PlaceKind, dict[str, int]] = field(default_factory=dict)
    entries: int = 0
    # Kinds of which one that had waited too long was given a place out of turn, since the last
    # place that went in order: the number of that one.
    relieved: dict[PlaceKind, int] = field(default_factory=dict)
    # Requests that nobody has told yet that they wait.
    untold: dict[str, None] = field(default_factory=dict)
    # Kinds whose order changed since it was told, and when each was told last.
    stale: dict[PlaceKind, None] = field(default_factory=dict)
    told_at: dict[PlaceKind, float] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many requests wait."""
        return sum(
            len(line)
            for kinds in self.by_model.values()
            for lines in kinds.values()
            for line in lines.values()
        )

    def add(self, kind: PlaceKind, tenant_id: str, rank: Rank, request_id: str) -> None:
        """Let a request wait."""
        lines = self.by_model.setdefault(kind.model_id, {}).setdefault(kind, {})
        line = lines.setdefault(tenant_id, [])
        insort(line, Waiting(rank, request_id))
        self.entries += 1
        self.entered.setdefault(kind, {})[request_id] = self.entries
        self.untold[request_id] = None
        if len(lines) > 1 or line[-1].request_id != request_id:
            self.stale[kind] = None

    def remove(self, kind: PlaceKind, tenant_id: str, rank: Rank, request_id: str) -> None:
        """It waits no longer, if it did."""
        self.untold.pop(request_id, None)
        lines = self.by_model.get(kind.model_id, {}).get(kind, {})
        line = lines.get(tenant_id, [])
        index = bisect_left(line, Waiting(rank, request_id))
        if index == len(line) or line[index].request_id != request_id:
            return
        del line[index]
        del self.entered[kind][request_id]
        self.stale[kind] = None
        if not line:
            del lines[tenant_id]
        if not lines:
            del self.by_model[kind.model_id][kind], self.entered[kind]
            self.relieved.pop(kind, None)
            self.stale.pop(kind, None)
            self.told_at.pop(kind, None)

    def longest(self, kind: PlaceKind) -> str:
        """Who has waited longest for such places; empty when nobody waits."""
        return next(iter(self.entered.get(kind, ())), "")

    def before(self, kind: PlaceKind, rank: Rank, request_id: str) -> int:
        """How many wait for the same that would go first if shares did not matter."""
        entry = Waiting(rank, request_id)
        return sum(bisect_left(line, entry) for line in self.lines(kind).values())

    def lines(self, kind: PlaceKind) -> Mapping[str, Sequence[Waiting]]:
        """Who waits for such places, in order, by tenant."""
        return self.by_model.get(kind.model_id, {}).get(kind, {})

    def of(self, models: Iterable[str]) -> Iterator[tuple[PlaceKind, str, Sequence[Waiting]]]:
        """The lines of these models."""
        for model_id in models:
            for kind, lines in self.by_model.get(model_id, {}).items():
                for tenant_id, line in lines.items():
                    yield kind, tenant_id, line

    def news_due(self, interval_s: float) -> float:
        """When the next order is to be told, in Unix seconds; infinite when none is."""
        return min((self.told_at.get(kind, -inf) + interval_s for kind in self.stale), default=inf)


def front(rank: Rank, tenant_id: str, shares: FairShares) -> Front:
    """Where a request stands that is the first of its tenant's line."""
    tag = shares.tag(rank.negative_priority, tenant_id)
    return rank.thrown_back, rank.negative_priority, rank.deadline, tag, rank.arrival
