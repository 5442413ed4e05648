"""BatchScheduler: which units run together next on one worker.

Units may share a forward when their batch key, kind and model instance are equal. The order is:
what has starved, then running requests, then new ones; inside of these by priority, deadline
and how long the unit has waited, so that kinds of work take turns. A new request's unit counts
as running once it has waited for `fresh_wait_seconds_max`: a busy worker lets it in.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, NamedTuple

from fastvideo.scheduling.admission import Ledger, add_amounts, declared_amounts, slot_of
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import UnitKind, WorkUnit


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
    kind: UnitKind
    batch_key: str


class _Place(NamedTuple):
    # 0 for a running request, 1 for a new one.
    fresh: int
    negative_priority: int
    deadline: float
    # Counts up on each worker.
    arrival: int
    unit_id: str


@dataclass(frozen=True, slots=True)
class ReadyUnit:
    """A unit that could run now."""

    # Choosing notes who has aged; taking in its choices does not.
    INCIDENTAL: ClassVar = frozenset({"place"})

    unit: WorkUnit
    place: _Place
    since: datetime
    # What it declares, its slot left out.
    amounts: Mapping[str, int]


@dataclass(slots=True)
class ReadyUnits:
    """The ready units of one worker that need one kind of slot, in order and by group."""

    INCIDENTAL: ClassVar = frozenset({"fresh", "groups"})

    # In the order of arrival, so the first is the one that has waited longest.
    units: dict[str, ReadyUnit] = field(default_factory=dict)
    # Those of new requests, in the same order.
    fresh: dict[str, None] = field(default_factory=dict)
    groups: dict[GroupKey, list[_Place]] = field(default_factory=dict)
    arrivals: int = 0

    def add(self, unit: WorkUnit, rank: Rank, *, running: bool, now: datetime) -> None:
        """Offer a unit."""
        self.arrivals += 1
        place = _Place(
            0 if running else 1,
            rank.negative_priority,
            rank.deadline,
            self.arrivals,
            unit.unit_id,
        )
        self.units[unit.unit_id] = ReadyUnit(unit, place, now, declared_amounts(unit.resources))
        if not running:
            self.fresh[unit.unit_id] = None
        insort(self.groups.setdefault(_group(unit), []), place)

    def remove(self, unit_id: str) -> None:
        """Take a unit out, whether or not it is there."""
        ready = self.units.pop(unit_id, None)
        if ready is not None:
            self.fresh.pop(unit_id, None)
            self._take(ready)

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
        insort(self.groups.setdefault(_group(ready.unit), []), place)

    def starving(self, now: datetime, waited_seconds: float) -> ReadyUnit | None:
        """The unit that has waited longest, if that is as long as given."""
        for ready in self.units.values():
            waited = (now - ready.since).total_seconds()
            return ready if waited >= waited_seconds else None
        return None

    def heads(self) -> Iterator[ReadyUnit]:
        """The first unit of each group, in order."""
        for place in sorted(group[0] for group in self.groups.values()):
            yield self.units[place.unit_id]

    def mates(self, unit: WorkUnit) -> Iterator[ReadyUnit]:
        """The units that may share a forward with this one, in order, itself left out."""
        for place in self.groups[_group(unit)]:
            if place.unit_id != unit.unit_id:
                yield self.units[place.unit_id]

    def _take(self, ready: ReadyUnit) -> None:
        key = _group(ready.unit)
        group = self.groups[key]
        del group[bisect_left(group, ready.place)]
        if not group:
            del self.groups[key]


@dataclass(frozen=True, slots=True)
class FormedBatch:
    """The next batch, empty when nothing can run, and the units passed over with the reason."""

    units: tuple[WorkUnit, ...]
    deferred: tuple[tuple[WorkUnit, str], ...] = ()


class BatchScheduler:
    """Forms batches that fit into what is free; changes nothing but the units' aging."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._policy = policy

    def form(self, ready: ReadyUnits, ledger: Ledger, now: datetime) -> FormedBatch:
        """The next batch of one worker.

        Units whose resources are taken are passed over, at most `deferrals_max` of them. Nobody
        goes past a starved unit, so that what it needs becomes free.
        """
        deferred: list[tuple[WorkUnit, str]] = []
        for first, starved in self._candidates(ready, now):
            amounts = {slot_of(first.unit): 1, **first.amounts}
            missing = ledger.missing(amounts)
            if missing is None:
                return FormedBatch(self._fill(ready, first, amounts, ledger), tuple(deferred))
            deferred.append((first.unit, missing))
            if starved or len(deferred) >= self._policy.deferrals_max:
                break
        return FormedBatch((), tuple(deferred))

    def _candidates(self, ready: ReadyUnits, now: datetime) -> Iterator[tuple[ReadyUnit, bool]]:
        """Units to begin a batch with, in order, and whether each has starved."""
        ready.promote(now, self._policy.fresh_wait_seconds_max)
        starving = ready.starving(now, self._policy.starving_wait_seconds_max)
        if starving is not None:
            yield starving, True
            return
        for head in ready.heads():
            yield head, False

    def _fill(
        self, ready: ReadyUnits, first: ReadyUnit, total: dict[str, int], ledger: Ledger
    ) -> tuple[WorkUnit, ...]:
        units = [first.unit]
        room = first.unit.max_batch
        if room == 1:
            return (first.unit,)
        for mate in ready.mates(first.unit):
            # The strictest member bounds the batch.
            room = min(room, mate.unit.max_batch)
            if len(units) >= room:
                break
            more = add_amounts(total, mate.amounts)
            if ledger.missing(more) is not None:
                break
            units.append(mate.unit)
            total = more
        return tuple(units)


def _group(unit: WorkUnit) -> GroupKey:
    return GroupKey(unit.model_instance_id, unit.kind, unit.batch_key)
