"""AdmissionController: nothing runs before all that it declares is reserved.

Every worker has a budget and a ledger of what is reserved on it, by resource name:

| resource          | what it counts                                   |
|-------------------|--------------------------------------------------|
| compute_slots     | batches in flight on the device                  |
| compute_seconds   | predicted device-seconds of them                 |
| io_slots          | units off the step path, such as artifact writes |
| resident_requests | requests that hold state                         |
| memory_bytes/TAG  | bytes of a memory pool                           |
| cache_blocks      | blocks of caches, for a unit or while a loop lives |
| transfer_bytes    | bytes on their way to another worker             |
| capture_shapes    | graph shapes being captured                      |
| stream_slots      | places in output streams                         |
| staging_bytes     | bytes of host staging                            |
| role_slots/ROLE   | places in a role pool                            |

A unit whose prediction is more than the whole budget of seconds takes all of it, since a
prediction alone makes nothing impossible.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fastvideo.errors import ContractViolation, ResourceExhausted
from fastvideo.scheduling.events import WorkerAttached
from fastvideo.scheduling.work import ResourceRequest, WorkUnit

COMPUTE: Final = "compute_slots"
SECONDS: Final = "compute_seconds"
IO: Final = "io_slots"
RESIDENT: Final = "resident_requests"
MEMORY: Final = "memory_bytes/"
CACHE: Final = "cache_blocks"
TRANSFER: Final = "transfer_bytes"
CAPTURE: Final = "capture_shapes"
STREAM: Final = "stream_slots"
STAGING: Final = "staging_bytes"
ROLE: Final = "role_slots/"

Amounts = Mapping[str, float]
"""Resource name to amount; seconds to the microsecond, all others whole."""

# So that seconds that come and go add up to nothing again.
_DIGITS: Final = 6


@dataclass(slots=True)
class Ledger:
    """What one worker has and what is reserved there now."""

    # A resource that is absent is one that the worker does not limit.
    budget: dict[str, float]
    reserved: dict[str, float] = field(default_factory=dict)

    def free(self, resource: str) -> float:
        """What is left of a limited resource."""
        return self.budget[resource] - self.reserved.get(resource, 0)

    def missing(self, amounts: Amounts) -> str | None:
        """Why the amounts cannot be reserved now; None when they can."""
        for resource, amount in amounts.items():
            limit = self.budget.get(resource)
            if limit is not None and self.reserved.get(resource, 0) + amount > limit:
                free = round(self.free(resource), _DIGITS)
                return f"{resource}: {amount} needed, {free} of {limit} free"
        return None

    def reserve(self, amounts: Amounts) -> None:
        """Take all of the amounts. ContractViolation, and nothing taken, when they do not fit."""
        missing = self.missing(amounts)
        if missing is not None:
            raise ContractViolation(f"reserved beyond the budget: {missing}", subject=missing)
        for resource, amount in amounts.items():
            self.reserved[resource] = round(self.reserved.get(resource, 0) + amount, _DIGITS)

    def release(self, amounts: Amounts) -> None:
        """Give all of the amounts back. ContractViolation when more is given than was taken."""
        for resource, amount in amounts.items():
            left = round(self.reserved.get(resource, 0) - amount, _DIGITS)
            if left < 0:
                raise ContractViolation(f"released more {resource} than reserved", subject=resource)
            if left:
                self.reserved[resource] = left
            else:
                self.reserved.pop(resource, None)


class AdmissionController:
    """Turns declarations into amounts and checks them against ledgers."""

    def __init__(
        self,
        *,
        resident_requests_max: int,
        worker_budget: Amounts,
        role_budgets: Mapping[str, Amounts] | None = None,
    ) -> None:
        self._resident_requests_max = resident_requests_max
        self._worker_budget = worker_budget
        self._role_budgets = role_budgets or {}

    def ledger(self, worker: WorkerAttached) -> Ledger:
        """An empty ledger: what a worker announced, bounded by the policy, and what it did not."""
        budget: dict[str, float] = {
            COMPUTE: worker.compute_slots,
            IO: worker.io_slots,
            RESIDENT: min(
                self._resident_requests_max,
                worker.resident_requests or self._resident_requests_max,
            ),
            CAPTURE: 1,
        }
        for tag, size in worker.memory_bytes.items():
            budget[MEMORY + tag] = size
        given = {**self._worker_budget, **self._role_budgets.get(worker.role, {})}
        for resource, amount in given.items():
            budget[resource] = min(amount, budget.get(resource, amount))
        return Ledger(budget)

    def check_possible(self, unit: WorkUnit, ledger: Ledger) -> None:
        """Raise ResourceExhausted, naming the resource, when the unit can never run there."""
        for resource, amount in unit_amounts(unit).items():
            limit = ledger.budget.get(resource)
            if limit is not None and amount > limit:
                raise ResourceExhausted(
                    f"a {unit.kind} unit needs {amount} {resource}; the worker has {limit}",
                    subject=resource,
                    attributes={"needed": str(amount), "limit": str(limit)},
                )


def slot_of(unit: WorkUnit) -> str:
    """The kind of slot that a unit runs in."""
    return COMPUTE if unit.resources.compute else IO


def unit_amounts(unit: WorkUnit) -> dict[str, float]:
    """All that one unit reserves when it runs alone, without the seconds."""
    amounts = {slot_of(unit): 1, **declared_amounts(unit.resources)}
    return add_amounts(amounts, kept_amounts(unit.resources))


def add_amounts(one: Amounts, other: Amounts) -> dict[str, float]:
    """Both together."""
    total: dict[str, float] = dict(one)
    for resource, amount in other.items():
        total[resource] = total.get(resource, 0) + amount
    return total


def subtract_amounts(one: Amounts, other: Amounts) -> dict[str, float]:
    """The first without the second; what is nothing then is left out."""
    left = {resource: amount - other.get(resource, 0) for resource, amount in one.items()}
    return {resource: amount for resource, amount in left.items() if amount}


def declared_amounts(resources: ResourceRequest) -> dict[str, float]:
    """What a declaration takes while the unit runs, without its slot and without zeros."""
    amounts: dict[str, float] = {
        MEMORY + tag: size for tag, size in resources.memory_bytes.items() if size
    }
    if resources.cache_blocks and not resources.cache_blocks_kept:
        amounts[CACHE] = resources.cache_blocks
    if resources.transfer_bytes:
        amounts[TRANSFER] = resources.transfer_bytes
    if resources.capture_shape:
        amounts[CAPTURE] = 1
    if resources.stream_slots:
        amounts[STREAM] = resources.stream_slots
    if resources.staging_bytes:
        amounts[STAGING] = resources.staging_bytes
    for role, places in resources.role_slots.items():
        if places:
            amounts[ROLE + role] = places
    return amounts


def kept_amounts(resources: ResourceRequest) -> dict[str, float]:
    """What a declaration takes until the loop ends, in place of what the loop kept before."""
    if resources.cache_blocks and resources.cache_blocks_kept:
        return {CACHE: resources.cache_blocks}
    return {}
