"""What a worker says of itself: identity, readiness, drain; and who is attached to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fastvideo.engine.budgets import unit_budgets
from fastvideo.engine.residents import Residents
from fastvideo.memory.pools import MemoryPools, MemoryTag
from fastvideo.scheduling.events import WorkerAttached

IO_SLOTS = 2
# Commands to prepare or run that may be here and are not answered.
COMMAND_CREDITS = 64
# Loops that wait for memory take a credit each; as many are left for those that run.
RESIDENT_REQUESTS_MAX = COMMAND_CREDITS // 2


@dataclass(slots=True, kw_only=True)
class WorkerStatus:
    """The worker's own view; changed on the event loop's thread only."""

    worker_id: str
    # New at every start of the process.
    incarnation: str
    residents: Residents
    pools: MemoryPools
    # Batches that compute side by side.
    compute_slots: int = 1
    # host:port that schedulers dial.
    address: str = ""
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    # Whether loops can be saved: there is a store for them.
    snapshots: bool = False
    ready: bool = False
    draining: bool = False
    sleeping: set[MemoryTag] = field(default_factory=set)
    # How many requests of a usual size have room at a time; 0 when that is not known.
    places: Callable[[], int] = lambda: 0
    # How long the parts of the start took: load, probe, warm_up.
    start_seconds: Mapping[str, float] = field(default_factory=dict)

    def attached(self) -> WorkerAttached:
        """What a scheduler is told when it attaches."""
        return WorkerAttached(
            worker_id=self.worker_id,
            address=self.address,
            incarnation=self.incarnation,
            instances=tuple(instance.state() for instance in self.residents.all()),
            memory_bytes=unit_budgets(self.pools.budgets_bytes, self.pools.role_budgets_bytes),
            compute_slots=self.compute_slots,
            io_slots=IO_SLOTS,
            fingerprint=self.fingerprint,
            snapshots=self.snapshots,
            credits=COMMAND_CREDITS,
            resident_requests=min(self.places() or RESIDENT_REQUESTS_MAX, RESIDENT_REQUESTS_MAX),
        )
