"""What a batch takes and what a worker has, worked out anew from declarations.

Nothing of the core's admission is used: two ways to the same sums, so that one can catch the
other.
"""

from collections.abc import Iterable, Mapping

from fastvideo.scheduling.events import WorkerAttached
from fastvideo.scheduling.policy import DEFAULT_BUDGET, SchedulingPolicy
from fastvideo.scheduling.work import WorkUnit


def budget_of(worker: WorkerAttached, policy: SchedulingPolicy) -> dict[str, float]:
    """What a worker has of each resource that is limited there."""
    budget: dict[str, float] = dict(DEFAULT_BUDGET)
    budget["compute_slots"] = worker.compute_slots
    budget["io_slots"] = worker.io_slots
    budget["capture_shapes"] = 1
    announced = worker.resident_requests or policy.resident_requests_max
    budget["resident_requests"] = min(announced, policy.resident_requests_max)
    for tag, size in worker.memory_bytes.items():
        budget[f"memory_bytes/{tag}"] = size
    given = {**policy.worker_budget, **policy.role_budgets.get(worker.role, {})}
    own = {"compute_slots", "io_slots", "capture_shapes", "resident_requests"}
    own |= {f"memory_bytes/{tag}" for tag in worker.memory_bytes}
    for resource, amount in given.items():
        # What the worker says of itself can only become less.
        budget[resource] = min(amount, budget[resource]) if resource in own else amount
    return budget


def batch_amounts(
    units: Iterable[WorkUnit], predicted_seconds: float, budget: Mapping[str, float]
) -> dict[str, float]:
    """What a batch reserves while it runs: one slot, and the sum of what its units declare."""
    amounts: dict[str, float] = {}
    compute = False
    for unit in units:
        declared = unit.resources
        compute = declared.compute
        for tag, size in declared.memory_bytes.items():
            _add(amounts, f"memory_bytes/{tag}", size)
        if not declared.cache_blocks_kept:
            _add(amounts, "cache_blocks", declared.cache_blocks)
        _add(amounts, "transfer_bytes", declared.transfer_bytes)
        _add(amounts, "stream_slots", declared.stream_slots)
        _add(amounts, "staging_bytes", declared.staging_bytes)
        _add(amounts, "capture_shapes", 1 if declared.capture_shape else 0)
        for role, places in declared.role_slots.items():
            _add(amounts, f"role_slots/{role}", places)
    amounts["compute_slots" if compute else "io_slots"] = 1
    if compute and predicted_seconds > 0:
        most = budget.get("compute_seconds", predicted_seconds)
        amounts["compute_seconds"] = min(most, predicted_seconds)
    return amounts


def _add(amounts: dict[str, float], resource: str, amount: float) -> None:
    if amount:
        amounts[resource] = amounts.get(resource, 0) + amount
