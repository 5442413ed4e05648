"""The ready units of a worker: who could run now, in order and by what may share a forward."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Final, NamedTuple

from fastvideo.scheduling.admission import declared_amounts
from fastvideo.scheduling.fairness import Bill, FairShares, bill
from fastvideo.scheduling.work import UnitKind, WorkUnit

OTHER_KINDS: Final = "other"
"""The flow of all kinds that the policy gives no share of their own."""

NO_BILL: Final = bill("", 0, 1.0, 0.0)


class Rank(NamedTuple):
    """Where a request stands; smaller goes first."""

    # 0 for one that was thrown back by the loss of a worker.
    thrown_back: int
    negative_priority: int
    # Unix seconds; infinite without a deadline.
    deadline: float
    arrival: int


class GroupKey(NamedTuple):
    """What must agree inside a batch."""

    model_instance_id: str
    loop_id: str
    kind: UnitKind
    batch_key: str


class Place(NamedTuple):
    """Where a unit stands on its worker; smaller goes first."""

    # 0 for a running request, 1 for a new one.
    fresh: int
    negative_priority: int
    deadline: float
    # The tenant's virtual time on the worker.
    share: float
    # Counts up on each worker.
    arrival: int
    unit_id: str


@dataclass(frozen=True, slots=True)
class ReadyUnit:
    """A unit that could run now."""

    # Choosing notes who has aged; taking in its choices does not.
    INCIDENTAL: ClassVar = frozenset({"place"})

    unit: WorkUnit
    group: GroupKey
    place: Place
    since: datetime
    # All that it reserves, its slot and its seconds left out; what its loop keeps included.
    amounts: Mapping[str, float]
    kept: Mapping[str, float]
    bill: Bill


@dataclass(slots=True)
class ReadyUnits:
    """The ready units of one worker that need one kind of slot."""

    INCIDENTAL: ClassVar = frozenset({"fresh", "groups"})

    # In the order of arrival, so the first is the one that has waited longest.
    units: dict[str, ReadyUnit] = field(default_factory=dict)
    # Those of new requests, in the same order.
    fresh: dict[str, None] = field(default_factory=dict)
    groups: dict[GroupKey, list[Place]] = field(default_factory=dict)
    arrivals: int = 0
    # Device-seconds of tenants; and of kinds, when the policy tells kinds apart.
    tenants: FairShares = field(default_factory=FairShares)
    kinds: FairShares = field(default_factory=FairShares)
    # The last batch began with a unit that had starved, so the next one does not.
    served_starving: bool = False

    def add(
        self,
        unit: WorkUnit,
        rank: Rank,
        *,
        running: bool,
        now: datetime,
        bill: Bill = NO_BILL,
        kept: Mapping[str, float] | None = None,
        amounts: Mapping[str, float] | None = None,
    ) -> None:
        """Offer a unit; its tenant is charged `bill` for it.

        `kept` is what its loop will keep more than it keeps already, `amounts` what it declares,
        for a caller that knows.
        """
        self.arrivals += 1
        place = Place(
            0 if running else 1,
            rank.negative_priority,
            rank.deadline,
            self.tenants.charge(bill),
            self.arrivals,
            unit.unit_id,
        )
        amounts = declared_amounts(unit.resources) if amounts is None else amounts
        if kept:
            amounts = {**amounts, **kept}
        group = group_of(unit)
        self.units[unit.unit_id] = ReadyUnit(unit, group, place, now, amounts, kept or {}, bill)
        if not running:
            self.fresh[unit.unit_id] = None
        insort(self.groups.setdefault(group, []), place)

    def remove(self, unit_id: str) -> None:
        """Take out a unit that will not run, whether or not it is there."""
        ready = self.units.get(unit_id)
        if ready is not None:
            self.tenants.correct(ready.bill, 0.0)
            self._drop(ready)

    def dispatch(
        self, unit_ids: Sequence[str], now: datetime, starving_s: float, kind_bill: Bill | None
    ) -> None:
        """The units begin, the first of them leading; their kind is charged `kind_bill`."""
        first = self.units[unit_ids[0]]
        self.served_starving = (now - first.since).total_seconds() >= starving_s
        self.tenants.serve(first.place.negative_priority, first.place.share)
        if kind_bill is not None:
            self.kinds.serve(kind_bill.priority, self.kinds.charge(kind_bill))
        for unit_id in unit_ids:
            self._drop(self.units[unit_id])

    def promote(self, now: datetime, waited_seconds: float) -> None:
        """Count the new requests' units that have waited as long as that as running."""
        while self.fresh:
            unit_id = next(iter(self.fresh))
            ready = self.units[unit_id]
            if (now - ready.since).total_seconds() < waited_seconds:
                return
            self.promote_unit(unit_id)

    def promote_unit(self, unit_id: str) -> None:
        """Count one unit as a running request's."""
        if unit_id not in self.fresh:
            return
        del self.fresh[unit_id]
        ready = self.units[unit_id]
        self._take(ready)
        place = ready.place._replace(fresh=0)
        # Assigning to a key that is there keeps its place in the order of arrival.
        self.units[unit_id] = replace(ready, place=place)
        insort(self.groups.setdefault(ready.group, []), place)

    def starving(self, now: datetime, waited_seconds: float) -> ReadyUnit | None:
        """The unit that has waited longest, if that is as long as given."""
        for ready in self.units.values():
            waited = (now - ready.since).total_seconds()
            return ready if waited >= waited_seconds else None
        return None

    def heads(self, kind_shares: Mapping[UnitKind, float]) -> Iterator[ReadyUnit]:
        """The first unit of each group, in order."""
        heads = [(group[0], key.kind) for key, group in self.groups.items()]
        if not kind_shares:
            heads.sort()
        else:
            heads.sort(
                key=lambda head: (*head[0][:3], self._kind_tag(head, kind_shares), *head[0][3:])
            )
        for place, _ in heads:
            yield self.units[place.unit_id]

    def mates(self, first: ReadyUnit) -> Iterator[ReadyUnit]:
        """The units that may share a forward with this one, in order, itself left out."""
        for place in self.groups[first.group]:
            if place.unit_id != first.unit.unit_id:
                yield self.units[place.unit_id]

    def _kind_tag(
        self, head: tuple[Place, UnitKind], kind_shares: Mapping[UnitKind, float]
    ) -> float:
        return self.kinds.tag(head[0].negative_priority, kind_flow(head[1], kind_shares))

    def _drop(self, ready: ReadyUnit) -> None:
        del self.units[ready.unit.unit_id]
        self.fresh.pop(ready.unit.unit_id, None)
        self._take(ready)

    def _take(self, ready: ReadyUnit) -> None:
        key = ready.group
        group = self.groups[key]
        del group[bisect_left(group, ready.place)]
        if not group:
            del self.groups[key]


def group_of(unit: WorkUnit) -> GroupKey:
    """What the unit's batch must agree in."""
    return GroupKey(unit.model_instance_id, unit.loop_id, unit.kind, unit.batch_key)


def kind_flow(kind: UnitKind, kind_shares: Mapping[UnitKind, float]) -> str:
    """The flow under which a kind has its share."""
    return kind.value if kind in kind_shares else OTHER_KINDS
