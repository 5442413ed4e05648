"""The stream between a leader and a worker: in order, delayed, and lost as a whole."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from fastvideo.simulation.agenda import Agenda, microseconds
from fastvideo.simulation.trace import FaultsTrace, NetworkTrace

# How much later a report may come a second time.
_AGAIN_S_MAX: Final = 2.0


class Stream:
    """One attachment of a worker to a leader. What is on its way when it ends is lost."""

    def __init__(
        self, agenda: Agenda, random: Random, network: NetworkTrace, faults: FaultsTrace
    ) -> None:
        self.open = True
        self._agenda = agenda
        self._random = random
        self._network = network
        self._faults = faults
        self._latest_us = [0, 0]

    def close(self) -> None:
        """Both sides see that it ended."""
        self.open = False

    def to_worker(self, receive: Callable[[Any], None], command: Any) -> None:
        """Send a command; it arrives after those before it."""
        self._agenda.at(self._arrival(0), self._deliver_command, receive, command)

    def to_leader(self, receive: Callable[[Any], None], report: Any) -> None:
        """Send a report; it may come twice, and although the stream has ended."""
        arrival_us = self._arrival(1)
        self._agenda.at(arrival_us, self._deliver_report, receive, report)
        if self._happens(self._faults.duplicate_report):
            # Nobody asks whether the stream is open: it is a message of the past.
            again_us = arrival_us + microseconds(self._random.uniform(0.0, _AGAIN_S_MAX))
            self._agenda.at(again_us, receive, report)

    def _arrival(self, way: int) -> int:
        delay_s = self._random.uniform(*self._network.delay_s)
        arrival_us = max(self._latest_us[way], self._agenda.now_us + microseconds(delay_s))
        self._latest_us[way] = arrival_us
        return arrival_us

    def _deliver_command(self, receive: Callable[[Any], None], command: Any) -> None:
        if self.open:
            receive(command)

    def _deliver_report(self, receive: Callable[[Any], None], report: Any) -> None:
        if self.open or self._happens(self._faults.late_report):
            receive(report)

    def _happens(self, share: float) -> bool:
        return share > 0 and self._random.random() < share
