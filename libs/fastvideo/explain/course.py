"""Where a request was, and what became of it: placements, pauses, absences and marks."""

from datetime import datetime
from typing import Final

from fastvideo.explain.records import AttemptRecord, Pause
from fastvideo.explain.types import ExplainedMark, WaitCause

MARKS_MAX: Final = 200
"""A request that is queued and preempted without end is still explained."""


class Course:
    """The request's way from acceptance to its end."""

    def __init__(self, accepted_at: datetime) -> None:
        # The one that the scheduler is at.
        self.attempt = 0
        self.attempts: list[AttemptRecord] = []
        self.pauses = [Pause(WaitCause.PLACE, accepted_at)]
        # Times in which its worker had no stream, and was given nothing.
        self.absences: list[Pause] = []
        self.marks: list[ExplainedMark] = []
        self.ended_at: datetime | None = None
        # How it ended, such as "completed" or "failed: ...".
        self.end = ""

    @property
    def pause(self) -> Pause | None:
        """The pause that the request is in."""
        last = self.pauses[-1]
        return last if last.ended_at is None else None

    def is_on(self, worker_id: str) -> bool:
        """Whether the request is on a worker now."""
        placed = self.attempts and self.attempts[-1].worker_id == worker_id
        return bool(placed) and self.ended_at is None and self.pause is None

    def place(self, at: datetime, attempt: int, worker_id: str, instance_id: str) -> AttemptRecord:
        """The placement that a loop is assigned in; a new one after a pause."""
        self.attempt = attempt
        pause = self.pause
        if pause is not None or not self.attempts:
            if pause is not None:
                pause.ended_at = at
            self.attempts.append(AttemptRecord(attempt, worker_id, instance_id, at))
        return self.attempts[-1]

    def begin_pause(self, at: datetime, cause: WaitCause, reason: str) -> None:
        """It waits for a place, unless it does already."""
        if self.pause is None:
            self.pauses.append(Pause(cause, at, reason))

    def close_attempt(self, at: datetime, end: str) -> None:
        """Its placement is over."""
        if self.attempts and self.attempts[-1].ended_at is None:
            self.attempts[-1].ended_at = at
            self.attempts[-1].end = end

    def begin_absence(self, at: datetime, reason: str) -> None:
        """Its worker has no stream."""
        self.absences.append(Pause(WaitCause.LOSS, at, reason))

    def end_absence(self, at: datetime) -> None:
        """Its worker has one again, or it is not there any more."""
        for absence in self.absences:
            absence.ended_at = absence.ended_at or at

    def finish(self, at: datetime, end: str) -> None:
        """The request is over."""
        self.end_absence(at)
        self.close_attempt(at, end)
        if self.pause is not None:
            self.pause.ended_at = at
        self.ended_at, self.end = at, end

    def mark(self, at: datetime, name: str, text: str) -> None:
        """Something worth telling happened."""
        if len(self.marks) < MARKS_MAX:
            self.marks.append(ExplainedMark(at=at, name=name, text=text))
