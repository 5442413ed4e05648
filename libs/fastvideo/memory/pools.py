"""Tagged memory pools: every resident byte has a tag and an owner, and goes back with them."""

import threading
from collections.abc import Mapping
from enum import StrEnum

from fastvideo.errors import ContractViolation, ResourceExhausted


class MemoryTag(StrEnum):
    """The pools of a worker; Sleep and Wake name them too."""

    # Parameters and buffers of components.
    WEIGHTS = "weights"
    # Loop states, values between nodes, and what units declare while they run.
    ACTIVATIONS = "activations"
    # Entries of the cache managers.
    CACHES = "caches"
    # Encoded artifacts on their way out.
    STAGING = "staging"


class OutOfMemory(ResourceExhausted):
    """A pool has less left than was asked; `subject` is its tag."""

    default_reason = "OUT_OF_MEMORY"

    def __init__(self, tag: MemoryTag, asked_bytes: int, free_bytes: int) -> None:
        super().__init__(
            f"the pool {tag} has {free_bytes} bytes free, {asked_bytes} were asked",
            subject=tag,
            attributes={"asked_bytes": str(asked_bytes), "free_bytes": str(free_bytes)},
        )


class MemoryPools:
    """Reservations by tag and owner, each pool with a budget; safe to use from any thread.

    An owner holds at most one amount a tag: `resize` sets it, `release` gives it back.
    """

    def __init__(self, budgets_bytes: Mapping[MemoryTag, int]) -> None:
        missing = set(MemoryTag) - set(budgets_bytes)
        if missing:
            raise ContractViolation(f"pools without a budget: {sorted(missing)}")
        self._budgets = dict(budgets_bytes)
        self._held: dict[MemoryTag, dict[str, int]] = {tag: {} for tag in MemoryTag}
        self._in_use = dict.fromkeys(MemoryTag, 0)
        self._lock = threading.Lock()

    @property
    def budgets_bytes(self) -> Mapping[MemoryTag, int]:
        """The limit of each pool."""
        return self._budgets

    def resize(self, tag: MemoryTag, owner: str, size_bytes: int) -> None:
        """Make what the owner holds in a pool exactly this much.

        Raises OutOfMemory, and changes nothing, when a growth does not fit.
        """
        if size_bytes < 0:
            raise ContractViolation(f"{owner} asks for {size_bytes} bytes", subject=tag)
        with self._lock:
            held = self._held[tag]
            growth = size_bytes - held.get(owner, 0)
            free = self._budgets[tag] - self._in_use[tag]
            if growth > max(0, free):
                raise OutOfMemory(tag, growth, free)
            self._in_use[tag] += growth
            if size_bytes:
                held[owner] = size_bytes
            else:
                held.pop(owner, None)

    def release(self, owner: str) -> int:
        """Give back all that the owner holds, in every pool; returns the bytes."""
        freed = 0
        with self._lock:
            for tag, held in self._held.items():
                size = held.pop(owner, 0)
                self._in_use[tag] -= size
                freed += size
        return freed

    def in_use_bytes(self) -> dict[MemoryTag, int]:
        """What is held now, by pool."""
        with self._lock:
            return dict(self._in_use)
