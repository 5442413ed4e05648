"""A history in short: one line an input, and a digest over all of them."""

import hashlib
from collections import deque

from fastvideo.scheduling.events import (
    AssignLoop,
    BatchExecuted,
    Decision,
    DispatchBatch,
    LoopFailed,
    LoopPrepared,
)
from fastvideo.scheduling.inputs import CancelRequested, RequestSubmitted, SchedulerInput
from fastvideo.simulation.agenda import MICROSECONDS
from fastvideo.simulation.leader import Entry


class History:
    """Digests what happens, and keeps the latest lines for a person."""

    def __init__(self, kept_lines: int = 0) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._kept: deque[str] = deque(maxlen=kept_lines)
        self.inputs = 0
        self.decisions = 0

    def take(self, entry: Entry) -> None:
        """Take in one entry."""
        self.inputs += 1
        self.decisions += len(entry.decisions)
        line = f"{entry.at_us} {entry.now.timestamp()} {input_line(entry.event)}"
        for decision in entry.decisions:
            line = f"{line} > {decision_line(decision)}"
        self._hash.update(line.encode())
        if self._kept.maxlen:
            self._kept.append(f"{entry.at_us / MICROSECONDS:12.6f} s  {line.partition(' ')[2]}")

    @property
    def digest(self) -> str:
        """Equal for histories that are equal."""
        return self._hash.hexdigest()

    @property
    def lines(self) -> tuple[str, ...]:
        """The latest entries."""
        return tuple(self._kept)


def input_line(event: SchedulerInput) -> str:
    """An input in few words."""
    match event:
        case RequestSubmitted():
            return f"submitted {event.spec.request_id}"
        case CancelRequested():
            return f"cancel {event.scope.target_id}"
        case LoopPrepared():
            loop = event.plan.loop
            return f"prepared {event.worker_id} {loop.request_id}/{loop.node_id}/{loop.attempt}"
        case LoopFailed():
            loop = event.loop
            return f"loop failed {event.worker_id} {loop.request_id}/{loop.node_id}"
        case BatchExecuted():
            ran = " ".join(f"{r.unit_id}:{r.state_digest}" for r in event.results)
            seconds = event.measured_seconds
            return f"executed {event.worker_id} {event.batch_id} {seconds:.6f} [{ran}]"
        case _:
            named = getattr(event, "worker_id", "")
            request = getattr(event, "request_id", "")
            return f"{type(event).__name__} {named} {request}".rstrip()


def decision_line(decision: Decision) -> str:
    """A decision in few words."""
    match decision:
        case DispatchBatch():
            return (
                f"dispatch {decision.batch_id} to {decision.worker_id} x{decision.window} "
                f"[{' '.join(decision.unit_ids)}]"
            )
        case AssignLoop():
            loop = decision.loop
            place = f"{loop.request_id}/{loop.node_id}/{loop.attempt}"
            return f"assign {place} to {decision.worker_id}"
        case _:
            parts = [type(decision).__name__]
            for name in ("request_id", "worker_id", "batch_id", "attempt", "position", "reason"):
                value = getattr(decision, name, "")
                if value != "":
                    parts.append(str(value))
            return " ".join(parts)
