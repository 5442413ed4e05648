"""What a replay has compared so far, and the report that it becomes."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from fastvideo.replay.types import (
    Comparison,
    PolicyFigures,
    Promise,
    ReplayProgress,
    ReplayReport,
    ReplayRequest,
)

COMPARISONS_MAX: Final = 200
"""Equal comparisons in a report, unless a request names another number."""

_DIFFERING_MAX: Final = 10_000
_NO_DIGESTS: Final[Mapping[str, str]] = MappingProxyType({})

Tell = Callable[[ReplayProgress | Comparison], None]
"""Is told how far a replay is, and of each comparison as it is made."""


class Tally:
    """Comparisons, each told as it is made; the first that differs is kept apart."""

    def __init__(self, tell: Tell, request: ReplayRequest) -> None:
        self._tell = tell
        self._request = request
        self._equal_max = request.comparisons_max or COMPARISONS_MAX
        self._kept: list[Comparison] = []
        self._kept_equal = 0
        # The largest difference of values; None as long as none were compared as such.
        self._apart: float | None = None
        # Results that differ, nobody knows how far.
        self._unmeasured = 0
        self.compared = 0
        self.differing = 0
        self.first: Comparison | None = None

    def add(self, comparison: Comparison, *, told_by_results: bool = False) -> None:
        """Count a comparison, and keep it if there is room.

        What is `told_by_results` may differ by bits alone: how far is seen at the results.
        """
        self.compared += 1
        self._measure(comparison.max_abs_difference)
        if not comparison.equal:
            self.differing += 1
            self._unmeasured += comparison.max_abs_difference is None and not told_by_results
            self.first = self.first or comparison
        if self._has_room(comparison.equal):
            self._kept.append(comparison)
            self._kept_equal += comparison.equal
        self._tell(comparison)

    def explain_first(self, comparison: Comparison) -> None:
        """Put what is known now of the first difference in its place."""
        if self.first in self._kept:
            self._kept[self._kept.index(self.first)] = comparison
        self.first = comparison
        self._tell(comparison)

    def all_within(self, tolerance: float) -> bool:
        """Whether values were compared as such, all of them near enough, and all that differ.

        NaN is infinitely far; a result that differs and was not measured is not near.
        """
        return not self._unmeasured and self._apart is not None and self._apart <= tolerance

    def report(
        self,
        *,
        promise: Promise,
        equal: bool,
        headline: str,
        seconds: float,
        original_seconds: float,
        original_traceparent: str = "",
        digests: Mapping[str, str] = _NO_DIGESTS,
        policies: tuple[PolicyFigures, ...] = (),
    ) -> ReplayReport:
        """The answer."""
        return ReplayReport(
            kind=self._request.kind,
            subject_id=self._request.subject_id,
            equal=equal,
            promise=promise,
            compared=self.compared,
            differing=self.differing,
            first_divergence=self.first,
            comparisons=tuple(self._kept),
            seconds=seconds,
            original_seconds=original_seconds,
            headline=headline,
            original_traceparent=original_traceparent,
            digests=digests,
            policies=policies,
        )

    def _measure(self, apart: float | None) -> None:
        if apart is None:
            return
        apart = math.inf if math.isnan(apart) else apart
        self._apart = apart if self._apart is None else max(self._apart, apart)

    def _has_room(self, equal: bool) -> bool:
        if equal:
            return self._kept_equal < self._equal_max
        return len(self._kept) - self._kept_equal < _DIFFERING_MAX
