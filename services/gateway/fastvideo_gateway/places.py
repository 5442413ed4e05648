"""Places for what lasts, such as streams and callers that wait: so many in all, and no tenant alone
takes them from the others."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fastvideo.errors import ResourceExhausted

TENANT_SHARE: Final = 0.5
"""How much of all places one tenant may have, where nothing else is said."""


class Places:
    """Gives out `total` places, and to one tenant at most a share of them.

    `subject` names them in errors, and `instead` says what who gets none may do.
    """

    def __init__(self, subject: str, total: int, share: float, instead: str) -> None:
        self._subject = subject
        self._total = total
        self._of_tenant = max(1, int(total * share))
        self._instead = instead
        self._taken: Counter[str] = Counter()

    def require(self, tenant_id: str) -> None:
        """Raise ResourceExhausted, which says whose share is used up, where there is no place."""
        if self._taken[tenant_id] >= self._of_tenant < self._total:
            raise self._exhausted(
                f"tenant {tenant_id} has {self._of_tenant} {self._subject}, the most for one",
                self._of_tenant,
                "TENANT_PLACES",
            )
        if self._taken.total() >= self._total:
            raise self._exhausted(
                f"there are {self._total} {self._subject}, the most of this gateway", self._total
            )

    @contextmanager
    def taken(self, tenant_id: str = "") -> Iterator[None]:
        """A place, for as long as the block lasts; without a tenant it is an operator's.

        Raises as `require` does.
        """
        self.require(tenant_id)
        with self.held(tenant_id):
            yield

    @contextmanager
    def held(self, tenant_id: str) -> Iterator[None]:
        """A place that was required a moment ago, for as long as the block lasts."""
        self._taken[tenant_id] += 1
        try:
            yield
        finally:
            self._taken[tenant_id] -= 1
            if not self._taken[tenant_id]:
                del self._taken[tenant_id]

    def _exhausted(self, what: str, most: int, reason: str | None = None) -> ResourceExhausted:
        return ResourceExhausted(
            f"{what}; {self._instead}",
            reason=reason,
            subject=self._subject,
            attributes={"limit": str(most)},
        )
