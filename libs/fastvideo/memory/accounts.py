"""The book of one pool: who holds how much, for which role, within which claim."""

from dataclasses import dataclass


@dataclass(slots=True)
class _Holding:
    """What one owner holds."""

    size_bytes: int
    role: str
    scope: str


@dataclass(slots=True)
class _Scope:
    """Owners that live within one claim."""

    claimed: int = 0
    held: int = 0
    peak: int = 0
    # From its claim, of whatever size, until that is dropped.
    is_open: bool = False

    @property
    def committed(self) -> int:
        """What nobody else can have: the claim, and what is held beyond it."""
        return max(self.claimed, self.held)


class Account:
    """Amounts in bytes. It checks no limit and takes no lock: its pool does."""

    def __init__(self) -> None:
        self.in_use = 0
        self.committed = 0
        self.high_water = 0
        self._holdings: dict[str, _Holding] = {}
        self._scopes: dict[str, _Scope] = {}
        self._roles: dict[str, int] = {}

    def held(self, owner: str) -> int:
        """What an owner holds."""
        holding = self._holdings.get(owner)
        return 0 if holding is None else holding.size_bytes

    def owners(self) -> dict[str, int]:
        """Who holds how much."""
        return {owner: holding.size_bytes for owner, holding in self._holdings.items()}

    def role_of(self, owner: str, otherwise: str) -> str:
        """The role that an owner's bytes count for."""
        holding = self._holdings.get(owner)
        return otherwise if holding is None else holding.role

    def role_in_use(self, role: str) -> int:
        """What the owners of a role hold."""
        return self._roles.get(role, 0)

    def commitment(self, owner: str, growth: int, scope: str) -> int:
        """By how much a growth of the owner makes the pool's commitment grow."""
        holding = self._holdings.get(owner)
        known = self._scopes.get(scope if holding is None else holding.scope)
        if known is None:
            return growth
        return max(known.claimed, known.held + growth) - known.committed

    def hold(self, owner: str, size_bytes: int, role: str, scope: str) -> None:
        """Set what an owner holds; role and scope count when it holds nothing yet."""
        holding = self._holdings.get(owner) or _Holding(0, role, scope)
        growth = size_bytes - holding.size_bytes
        self.committed += self.commitment(owner, growth, scope)
        self.in_use += growth
        self.high_water = max(self.high_water, self.in_use)
        self._roles[holding.role] = self._roles.get(holding.role, 0) + growth
        if holding.scope:
            within = self._scopes.setdefault(holding.scope, _Scope())
            within.held += growth
            within.peak = max(within.peak, within.held)
        holding.size_bytes = size_bytes
        if size_bytes:
            self._holdings[owner] = holding
        else:
            self._forget(owner, holding)

    def drop(self, owner: str) -> int:
        """The owner holds nothing any more; returns what it held."""
        freed = self.held(owner)
        if freed:
            self.hold(owner, 0, "", "")
        return freed

    def claim_commitment(self, scope: str, size_bytes: int) -> int:
        """By how much a scope's claim of this size makes the pool's commitment grow."""
        known = self._scopes.get(scope) or _Scope()
        return max(size_bytes, known.held) - known.committed

    def claim(self, scope: str, size_bytes: int) -> None:
        """Set a scope's claim."""
        self.committed += self.claim_commitment(scope, size_bytes)
        known = self._scopes.setdefault(scope, _Scope())
        known.claimed, known.is_open = size_bytes, True

    def unclaim(self, scope: str) -> int:
        """Drop a scope's claim; returns the most that its owners ever held together."""
        known = self._scopes.get(scope)
        if known is None:
            return 0
        self.claim(scope, 0)
        known.is_open = False
        if not known.held:
            del self._scopes[scope]
        return known.peak

    def _forget(self, owner: str, holding: _Holding) -> None:
        self._holdings.pop(owner, None)
        if not self._roles.get(holding.role):
            self._roles.pop(holding.role, None)
        within = self._scopes.get(holding.scope)
        if within is not None and not (within.held or within.is_open):
            del self._scopes[holding.scope]
