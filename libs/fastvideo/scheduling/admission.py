"""AdmissionController: nothing runs before all that it declares is reserved.

Every worker has a budget and a ledger of what is reserved on it, by resource name:

| resource          | what it counts                                   |
|-------------------|--------------------------------------------------|
| compute_slots     | batches in flight on the device                  |
| io_slots          | units off the step path, such as artifact writes |
| resident_requests | requests that hold state                         |
| memory_bytes/TAG  | bytes of a memory pool                           |
| cache_blocks      | blocks of paged caches                           |
| transfer_bytes    | bytes on their way to another worker             |
| capture_shapes    | graph shapes being captured                      |
| stream_slots      | places in output streams                         |
| staging_bytes     | bytes of host staging                            |
| role_slots/ROLE   | places in a role pool                            |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fastvideo.errors import ContractViolation, ResourceExhausted
from fastvideo.scheduling.events import WorkerAttached
from fastvideo.scheduling.work import ResourceRequest, WorkUnit

COMPUTE: Final = "compute_slots"
IO: Final = "io_slots"
RESIDENT: Final = "resident_requests"
MEMORY: Final = "memory_bytes/"
CACHE: Final = "cache_blocks"
TRANSFER: Final = "transfer_bytes"
CAPTURE: Final = "capture_shapes"
STREAM: Final = "stream_slots"
STAGING: Final = "staging_bytes"
ROLE: Final = "role_slots/"

Amounts = Mapping[str, int]
"""Resource name to amount."""


@dataclass(slots=True)
class Ledger:
    """What one worker has and what is reserved there now."""

    # A resource that is absent is one that the worker does not limit.
    budget: dict[str, int]
    reserved: dict[str, int] = field(default_factory=dict)

    def free(self, resource: str) -> int:
        """What is left of a limited resource."""
        return self.budget[resource] - self.reserved.get(resource, 0)

    def missing(self, amounts: Amounts) -> str | None:
        """Why the amounts cannot be reserved now; None when they can."""
        for resource, amount in amounts.items():
            limit = self.budget.get(resource)
            if limit is not None and self.reserved.get(resource, 0) + amount > limit:
                return f"{resource}: {amount} needed, {self.free(resource)} of {limit} free"
        return None

    def reserve(self, amounts: Amounts) -> None:
        """Take all of the amounts. ContractViolation, and nothing taken, when they do not fit."""
        missing = self.missing(amounts)
        if missing is not None:
            raise ContractViolation(f"reserved beyond the budget: {missing}", subject=missing)
        for resource, amount in amounts.items():
            self.reserved[resource] = self.reserved.get(resource, 0) + amount

    def release(self, amounts: Amounts) -> None:
        """Give all of the amounts back. ContractViolation when more is given than was taken."""
        for resource, amount in amounts.items():
            left = self.reserved.get(resource, 0) - amount
            if left < 0:
                raise ContractViolation(f"released more {resource} than reserved", subject=resource)
            if left:
                self.reserved[resource] = left
            else:
                self.reserved.pop(resource, None)


class AdmissionController:
    """Turns declarations into amounts and checks them against ledgers."""

    def __init__(self, *, resident_requests_max: int, worker_budget: Amounts) -> None:
        self._resident_requests_max = resident_requests_max
        self._worker_budget = worker_budget

    def ledger(self, worker: WorkerAttached) -> Ledger:
        """An empty ledger with the budget that a worker announced."""
        budget = {
            **self._worker_budget,
            COMPUTE: worker.compute_slots,
            IO: worker.io_slots,
            RESIDENT: self._resident_requests_max,
            CAPTURE: 1,
        }
        for tag, size in worker.memory_bytes.items():
            budget[MEMORY + tag] = size
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


def unit_amounts(unit: WorkUnit) -> dict[str, int]:
    """All that one unit reserves when it runs alone."""
    return {slot_of(unit): 1, **declared_amounts(unit.resources)}


def add_amounts(one: Amounts, other: Amounts) -> dict[str, int]:
    """Both together."""
    total = dict(one)
    for resource, amount in other.items():
        total[resource] = total.get(resource, 0) + amount
    return total


def declared_amounts(resources: ResourceRequest) -> dict[str, int]:
    """A declaration as amounts, without its slot; zero amounts are left out."""
    amounts = {MEMORY + tag: size for tag, size in resources.memory_bytes.items() if size}
    if resources.cache_blocks:
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
