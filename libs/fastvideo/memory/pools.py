"""Tagged memory pools: every resident byte has a tag and an owner, and goes back with them."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fastvideo.errors import ContractViolation, ResourceExhausted
from fastvideo.memory.accounts import Account
from fastvideo.memory.pressure import Evictions, Reclaimer


class MemoryTag(StrEnum):
    """The pools of a worker; Sleep and Wake name them too."""

    # Parameters and buffers of components, and adapters.
    WEIGHTS = "weights"
    # Loop states, values between nodes, and what units declare while they run.
    ACTIVATIONS = "activations"
    # Entries of the cache managers.
    CACHES = "caches"
    # Encoded artifacts, transfers and snapshots on their way out or in, and staging buffers.
    STAGING = "staging"


RoleBudgets = Mapping[str, Mapping[MemoryTag, int]]
"""Role to its share of each pool, bytes; a pool that is left out is shared without a limit."""

# What caches do not use, running work may have, and cached entries give way to it; never the
# other way round. (Spark's unified memory manager treats execution and storage memory so.)
_LENDER: Final = MemoryTag.CACHES
_BORROWERS: Final = (MemoryTag.ACTIVATIONS, MemoryTag.STAGING)
# Other threads may take what was just given back, so an owner asks again, but not for ever.
_RECLAIMS_MAX: Final = 4


class OutOfMemory(ResourceExhausted):
    """A pool, or a role's share of it, has less left than was asked.

    `subject` is the tag, or "ROLE/TAG".
    """

    default_reason = "OUT_OF_MEMORY"

    def __init__(
        self, tag: MemoryTag, asked_bytes: int, free_bytes: int, *, owner: str = "", role: str = ""
    ) -> None:
        place = f"the share of role {role} in the pool {tag}" if role else f"the pool {tag}"
        about = {"asked_bytes": str(asked_bytes), "free_bytes": str(free_bytes), "tag": tag.value}
        about |= {"owner": owner} if owner else {}
        about |= {"role": role} if role else {}
        super().__init__(
            f"{place} has {free_bytes} bytes free, {asked_bytes} were asked",
            subject=f"{role}/{tag}" if role else tag,
            attributes=about,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUsage:
    """One pool now; bytes."""

    budget: int
    # Held by owners.
    in_use: int
    # Held, or claimed by scopes that do not hold it yet.
    reserved: int
    # The most that was ever held.
    high_water: int


class MemoryPools:
    """Reservations by tag and owner, each pool with a budget; safe to use from any thread.

    An owner holds at most one amount a tag: `resize` sets it, `release` gives it back. Owners
    of one scope, such as the loops and values of a request, may live within a claim that was
    made for all of them beforehand. When a growth does not fit, reclaimers are asked to give
    back what no running work uses.
    """

    def __init__(
        self, budgets_bytes: Mapping[MemoryTag, int], role_budgets_bytes: RoleBudgets | None = None
    ) -> None:
        missing = set(MemoryTag) - set(budgets_bytes)
        if missing:
            raise ContractViolation(f"pools without a budget: {sorted(missing)}")
        self._budgets = dict(budgets_bytes)
        self._roles = {role: dict(shares) for role, shares in (role_budgets_bytes or {}).items()}
        self._accounts = {tag: Account() for tag in MemoryTag}
        self._reclaimers: dict[MemoryTag, list[Reclaimer]] = {tag: [] for tag in MemoryTag}
        self._lock = threading.Lock()

    @property
    def budgets_bytes(self) -> Mapping[MemoryTag, int]:
        """The limit of each pool."""
        return self._budgets

    @property
    def role_budgets_bytes(self) -> RoleBudgets:
        """The limits of roles."""
        return self._roles

    def on_pressure(self, tag: MemoryTag, reclaimer: Reclaimer) -> None:
        """Ask this one to give back when the pool is short; in the order of these calls."""
        self._reclaimers[tag].append(reclaimer)

    def resize(
        self, tag: MemoryTag, owner: str, size_bytes: int, *, role: str = "", scope: str = ""
    ) -> Evictions:
        """Make what the owner holds in a pool exactly this much; returns what was evicted for it.

        Role and scope are those of the owner's first growth. Raises OutOfMemory, and changes
        nothing that the owner holds, when a growth does not fit.
        """
        if size_bytes < 0:
            raise ContractViolation(f"{owner} asks for {size_bytes} bytes", subject=tag)
        evicted: Evictions = ()
        for tries_left in reversed(range(_RECLAIMS_MAX)):
            with self._lock:
                account = self._accounts[tag]
                growth = size_bytes - account.held(owner)
                self._check_role(tag, owner, account.role_of(owner, role), growth)
                shortage = account.commitment(owner, growth, scope) - self._room(tag)
                if growth <= 0 or shortage <= 0:
                    account.hold(owner, size_bytes, role, scope)
                    return evicted
                refusal = OutOfMemory(tag, growth, max(0, self._room(tag)), owner=owner)
            given = self._reclaim(tag, shortage) if tries_left else ()
            if not given:
                raise refusal
            evicted += given
        raise refusal

    def claim(self, tag: MemoryTag, scope: str, size_bytes: int) -> Evictions:
        """Reserve for a scope what its owners will come to hold; returns what was evicted.

        Raises OutOfMemory, and claims nothing, when it does not fit.
        """
        evicted: Evictions = ()
        for tries_left in reversed(range(_RECLAIMS_MAX)):
            with self._lock:
                account = self._accounts[tag]
                shortage = account.claim_commitment(scope, size_bytes) - self._room(tag)
                if shortage <= 0:
                    account.claim(scope, size_bytes)
                    return evicted
                refusal = OutOfMemory(tag, size_bytes, max(0, self._room(tag)), owner=scope)
            given = self._reclaim(tag, shortage) if tries_left else ()
            if not given:
                raise refusal
            evicted += given
        raise refusal

    def unclaim(self, tag: MemoryTag, scope: str) -> int:
        """Drop a scope's claim; returns the most that its owners ever held together."""
        with self._lock:
            return self._accounts[tag].unclaim(scope)

    def release(self, owner: str) -> int:
        """Give back all that the owner holds, in every pool; returns the bytes."""
        with self._lock:
            return sum(account.drop(owner) for account in self._accounts.values())

    def held_bytes(self, tag: MemoryTag, owner: str) -> int:
        """What an owner holds in a pool."""
        with self._lock:
            return self._accounts[tag].held(owner)

    def owners(self, tag: MemoryTag) -> dict[str, int]:
        """Who holds how much of a pool."""
        with self._lock:
            return self._accounts[tag].owners()

    def in_use_bytes(self) -> dict[MemoryTag, int]:
        """What is held now, by pool."""
        with self._lock:
            return {tag: account.in_use for tag, account in self._accounts.items()}

    def role_in_use_bytes(self, role: str) -> dict[MemoryTag, int]:
        """What a role's owners hold now, by pool."""
        with self._lock:
            return {tag: account.role_in_use(role) for tag, account in self._accounts.items()}

    def usage(self) -> dict[MemoryTag, PoolUsage]:
        """All pools now, with their high-water marks."""
        with self._lock:
            return {
                tag: PoolUsage(
                    budget=self._budgets[tag],
                    in_use=account.in_use,
                    reserved=account.committed,
                    high_water=account.high_water,
                )
                for tag, account in self._accounts.items()
            }

    def _room(self, tag: MemoryTag) -> int:
        """What may still be taken of a pool, with what it can borrow. Below 0 when it borrows."""
        own = self._budgets[tag] - self._accounts[tag].committed
        if tag is _LENDER:
            return own - self._lent(_BORROWERS)
        if tag not in _BORROWERS:
            return own
        others = tuple(other for other in _BORROWERS if other is not tag)
        unused = self._budgets[_LENDER] - self._accounts[_LENDER].committed
        return own + max(0, unused - self._lent(others))

    def _lent(self, borrowers: tuple[MemoryTag, ...]) -> int:
        return sum(max(0, self._accounts[tag].committed - self._budgets[tag]) for tag in borrowers)

    def _check_role(self, tag: MemoryTag, owner: str, role: str, growth: int) -> None:
        limit = self._roles.get(role, {}).get(tag)
        if limit is None or growth <= 0:
            return
        free = limit - self._accounts[tag].role_in_use(role)
        if growth > free:
            raise OutOfMemory(tag, growth, max(0, free), owner=owner, role=role)

    def _reclaim(self, tag: MemoryTag, shortage: int) -> Evictions:
        """Ask who can give back, outside of the lock: they release what they hold here.

        Nothing is evicted in vain: when all together cannot give enough, none is asked to.
        """
        asked = list(self._reclaimers[tag])
        if tag in _BORROWERS:
            asked += self._reclaimers[_LENDER]
        if sum(reclaimer.reclaimable_bytes() for reclaimer in asked) < shortage:
            return ()
        evicted: Evictions = ()
        for reclaimer in asked:
            missing = shortage - sum(eviction.size_bytes for eviction in evicted)
            if missing <= 0:
                break
            evicted += reclaimer.reclaim(missing)
        return evicted
