"""BatchScheduler: which units run together next on one worker.

Units may share a forward when their batch key, kind, loop and model instance are equal. The
order is: running requests, then new ones; inside of these by priority, deadline, the kind's share
of device-seconds, the tenant's share, and how long the unit has waited. A new request's unit
counts as running once it has waited for `fresh_wait_seconds_max`: a busy worker lets it in.

Bounded wait: a unit that has waited for W = `starving_wait_seconds_max` has starved, and every
second batch begins with the unit that starved first. So while a worker runs others, no ready
unit waits longer than W + 2 * (S + 1) * B. S is the number of units that became ready on the
worker before it and still wait, at most those that `resident_requests_max` requests offer; B is
the longest single step, since a window stops at its next boundary once somebody waits.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from fastvideo.scheduling.admission import (
    COMPUTE,
    IO,
    SECONDS,
    Ledger,
    add_amounts,
    slot_of,
)
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.ready import ReadyUnit, ReadyUnits
from fastvideo.scheduling.work import WorkUnit

Price = Callable[[WorkUnit, int], float]
"""Predicted seconds of a forward over that many units like this one."""


@dataclass(frozen=True, slots=True)
class FormedBatch:
    """The next batch, empty when nothing can run, and the units passed over with the reason."""

    units: tuple[WorkUnit, ...]
    deferred: tuple[tuple[WorkUnit, str], ...] = ()


class BatchScheduler:
    """Forms batches that fit into what is free; changes nothing but the units' aging."""

    def __init__(self, policy: SchedulingPolicy, price: Price | None = None) -> None:
        self._policy = policy
        self._price = price or (lambda unit, units: 0.0)

    def form(self, ready: ReadyUnits, ledger: Ledger, now: datetime) -> FormedBatch:
        """The next batch of one worker.

        Units whose resources are taken are passed over, at most `deferrals_max` of them while
        anything runs whose end will let the worker be looked at again. Nobody
        goes past one that waits for seconds alone, else those that need few would never leave
        enough for one that needs many; nor past a starved unit while something runs whose end may
        free what it needs.
        """
        deferred: list[tuple[WorkUnit, str]] = []
        for first, starved in self._candidates(ready, now, everyone=not _runs(ledger)):
            amounts = self._with_seconds({slot_of(first.unit): 1, **first.amounts}, first, ledger)
            missing = ledger.missing(amounts)
            if missing is None:
                return FormedBatch(self._fill(ready, first, amounts, ledger), tuple(deferred))
            deferred.append((first.unit, missing))
            # Seconds are the currency: whoever is next waits for them, and nobody goes past.
            waits = missing.startswith(SECONDS) or (starved and _runs(ledger))
            if waits or (len(deferred) >= self._policy.deferrals_max and _runs(ledger)):
                break
        return FormedBatch((), tuple(deferred))

    def _candidates(
        self, ready: ReadyUnits, now: datetime, *, everyone: bool
    ) -> Iterator[tuple[ReadyUnit, bool]]:
        """Units to begin a batch with, in order, and whether each has starved.

        The first of each group, since its others need the same; `everyone` else too, as loops
        that keep something may need less.
        """
        tried = set()
        ready.promote(now, self._policy.fresh_wait_seconds_max)
        starving = ready.starving(now, self._policy.starving_wait_seconds_max)
        if starving is not None and not ready.served_starving:
            yield starving, True
            tried.add(starving.unit.unit_id)
        for head in ready.heads(self._policy.kind_shares):
            if head.unit.unit_id not in tried:
                tried.add(head.unit.unit_id)
                yield head, False
        for other in list(ready.units.values()) if everyone else ():
            if other.unit.unit_id not in tried:
                yield other, False

    def _fill(
        self, ready: ReadyUnits, first: ReadyUnit, total: dict[str, float], ledger: Ledger
    ) -> tuple[WorkUnit, ...]:
        units = [first.unit]
        room = min(first.unit.max_batch, self._policy.batch_units_max)
        if room == 1:
            return (first.unit,)
        for mate in ready.mates(first):
            # The strictest member bounds the batch.
            room = min(room, mate.unit.max_batch)
            if len(units) >= room:
                break
            more = add_amounts(total, mate.amounts)
            if SECONDS in ledger.budget:
                more[SECONDS] = self._price(first.unit, len(units) + 1)
            if ledger.missing(more) is not None:
                break
            units.append(mate.unit)
            total = more
        return tuple(units)

    def _with_seconds(
        self, amounts: dict[str, float], first: ReadyUnit, ledger: Ledger
    ) -> dict[str, float]:
        limit = ledger.budget.get(SECONDS)
        if limit is not None and first.unit.resources.compute:
            amounts[SECONDS] = min(limit, self._price(first.unit, 1))
        return amounts


def _runs(ledger: Ledger) -> bool:
    """Whether anything is in flight on the worker."""
    return ledger.reserved.get(COMPUTE, 0) + ledger.reserved.get(IO, 0) > 0
