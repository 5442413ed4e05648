"""How much of the machine's memory a worker may use, by pool."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fastvideo.errors import InvalidField
from fastvideo.memory.pools import MemoryTag, RoleBudgets

_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
# The rest is left to the interpreter and to libraries.
_SHARES: Final[Mapping[MemoryTag, float]] = {
    MemoryTag.WEIGHTS: 0.5,
    MemoryTag.ACTIVATIONS: 0.3,
    MemoryTag.CACHES: 0.05,
    MemoryTag.STAGING: 0.05,
}


def machine_bytes(cgroup_limit: Path = _CGROUP_LIMIT) -> int:
    """Memory of this machine, or of the container when that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = cgroup_limit.read_text().strip() if cgroup_limit.is_file() else "max"
    return min(physical, int(limit)) if limit.isdigit() else physical


def pool_budgets(total_bytes: int) -> dict[MemoryTag, int]:
    """The budget of each pool, from the bytes that the worker may use in all."""
    return {tag: int(total_bytes * share) for tag, share in _SHARES.items()}


def role_budgets(
    shares: Mapping[str, float], budgets: Mapping[MemoryTag, int]
) -> dict[str, dict[MemoryTag, int]]:
    """The budgets of roles, from "ROLE/POOL" to a share of the pool, above 0 and at most 1.

    A loop plays the role that its plan names, or else the one of its own name. Raises
    InvalidField naming the share that is wrong.
    """
    roles: dict[str, dict[MemoryTag, int]] = {}
    for name, share in shares.items():
        role, _, tag = name.rpartition("/")
        if not role or tag not in set(MemoryTag):
            raise InvalidField("role_memory", name, f"ROLE/POOL, pools: {', '.join(MemoryTag)}")
        if not 0 < share <= 1:
            raise InvalidField(f"role_memory.{name}", share, "a share above 0 and at most 1")
        pool = MemoryTag(tag)
        roles.setdefault(role, {})[pool] = int(budgets[pool] * share)
    return roles


def unit_budgets(
    budgets: Mapping[MemoryTag, int], roles: RoleBudgets | None = None
) -> dict[str, int]:
    """What a scheduler may reserve for units, by tag.

    Half of the activations is kept for loop states and values, which units do not declare. A
    batch is of one role, so what fits the smallest share fits its own.
    """
    limits = {
        tag: min([size, *(shares[tag] for shares in (roles or {}).values() if tag in shares)])
        for tag, size in budgets.items()
    }
    return {
        tag.value: size // 2 if tag is MemoryTag.ACTIVATIONS else size
        for tag, size in limits.items()
    }
