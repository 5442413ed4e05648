"""Weighted fair shares of device-seconds: start-time fair queueing.

Goyal, Vin, Cheng, "Start-time Fair Queueing", SIGCOMM 1996. Every flow has a virtual time that
grows by the seconds that it was charged, divided by its weight; who is furthest behind goes
first. A flow that was idle begins at the virtual time of what is being served, so idleness
builds no credit. Flows are tenants (of units on a worker, of places in the shard) or kinds of
units (on a worker).
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

# What is charged for work whose cost nobody knows yet; the measurement corrects it.
CHARGE_MIN: Final = 0.001
# Flows of one queue that are remembered, and queues of one place.
FLOWS_MAX: Final = 4_096
CLASSES_MAX: Final = 256


@dataclass(slots=True)
class FairQueue:
    """The virtual times of flows that compete for one thing."""

    # The tag of what was served last.
    now: float = 0.0
    # Flow to the virtual time up to which it has been charged.
    charged: dict[str, float] = field(default_factory=dict)

    def tag(self, flow: str) -> float:
        """Where the flow's next work stands; the smallest is to be served first."""
        return max(self.now, self.charged.get(flow, 0.0))

    def charge(self, flow: str, amount: float) -> float:
        """Charge seconds by weight for work that now waits or begins; gives its tag."""
        if len(self.charged) >= FLOWS_MAX:
            self._forget_idle()
        tag = self.tag(flow)
        self.charged[flow] = tag + amount
        return tag

    def serve(self, tag: float) -> None:
        """Work with that tag begins."""
        self.now = max(self.now, tag)

    def correct(self, flow: str, amount: float) -> None:
        """Charge that much more, or less, for work that was charged before."""
        charged = self.charged.get(flow)
        if charged is not None:
            self.charged[flow] = charged + amount

    def _forget_idle(self) -> None:
        """Drop the flows that would begin anew anyway; the oldest when none would."""
        busy = {flow: at for flow, at in self.charged.items() if at > self.now}
        if len(busy) == len(self.charged):
            del busy[next(iter(busy))]
        self.charged = busy


class Bill(NamedTuple):
    """What was charged to a flow, and in which class of priority."""

    flow: str
    priority: int
    weight: float
    seconds: float


def bill(flow: str, priority: int, weight: float, seconds: float) -> Bill:
    """A bill over predicted seconds; 0 when nobody knows."""
    return Bill(flow, priority, weight, max(CHARGE_MIN, seconds))


@dataclass(slots=True)
class FairShares:
    """Fair shares between flows, in each class of priority by itself."""

    classes: dict[int, FairQueue] = field(default_factory=dict)

    def charge(self, bill: Bill) -> float:
        """Charge a bill; gives the tag of the work that it is for."""
        return self._class(bill.priority).charge(bill.flow, bill.seconds / bill.weight)

    def tag(self, priority: int, flow: str) -> float:
        """Where the flow's next work stands in its class."""
        known = self.classes.get(priority)
        return known.tag(flow) if known is not None else 0.0

    def serve(self, priority: int, tag: float) -> None:
        """Work with that tag begins."""
        self._class(priority).serve(tag)

    def correct(self, bill: Bill, seconds: float) -> None:
        """What was billed took `seconds`; 0 when it never began."""
        self._class(bill.priority).correct(bill.flow, (seconds - bill.seconds) / bill.weight)

    def _class(self, priority: int) -> FairQueue:
        known = self.classes.get(priority)
        if known is None:
            if len(self.classes) >= CLASSES_MAX:
                del self.classes[next(iter(self.classes))]
            known = self.classes[priority] = FairQueue()
        return known
