"""What a worker has reported and the scheduler's log may not have yet."""

from collections import deque
from dataclasses import replace
from typing import Final

from fastvideo.errors import ResourceExhausted
from fastvideo.scheduling.events import (
    BatchExecuted,
    LoopFailed,
    LoopPrepared,
    RequestSnapshotted,
    WorkerDraining,
)

Report = LoopPrepared | LoopFailed | BatchExecuted | RequestSnapshotted | WorkerDraining
"""What counts as a report: it has a number, and is sent again until it is acknowledged."""

REPORTS_MAX: Final = 10_000


class Outbox:
    """Numbered reports, from the first that is not acknowledged on."""

    def __init__(self, reports_max: int = REPORTS_MAX) -> None:
        self._reports_max = reports_max
        self._reports: deque[Report] = deque()
        self._last = 0

    @property
    def last(self) -> int:
        """The number of the newest report; it never falls."""
        return self._last

    def add(self, event: Report) -> Report:
        """Number a report and keep it. Raises ResourceExhausted when too many are kept."""
        if len(self._reports) >= self._reports_max:
            raise ResourceExhausted(
                f"{self._reports_max} reports are not acknowledged, which is the most",
                subject="reports",
            )
        self._last += 1
        numbered: Report = replace(event, report=self._last)
        self._reports.append(numbered)
        return numbered

    def acknowledge(self, number: int) -> None:
        """Drop the reports up to this one."""
        while self._reports and self._reports[0].report <= number:
            self._reports.popleft()

    def has_all_after(self, number: int) -> bool:
        """Whether no report after this one was dropped, or is yet to be made."""
        first = self._reports[0].report if self._reports else self._last + 1
        return first - 1 <= number <= self._last

    def after(self, number: int) -> tuple[Report, ...]:
        """The reports after this one, in order."""
        return tuple(report for report in self._reports if report.report > number)

    def clear(self) -> None:
        """Drop all; numbers go on rising."""
        self._reports.clear()
