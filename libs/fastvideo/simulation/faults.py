"""What goes wrong, drawn from the seed, until requests stop coming."""

from collections.abc import Callable
from random import Random
from typing import Protocol

from fastvideo.simulation.agenda import Agenda, microseconds
from fastvideo.simulation.trace import FaultsTrace
from fastvideo.simulation.worker import SimulatedWorker


class Victims(Protocol):
    """What a world lets faults do to it."""

    def lose_worker(self, worker: SimulatedWorker, back_after_s: float, silent: bool) -> None:
        """Its process dies."""
        ...

    def pause_worker(self, worker: SimulatedWorker, for_s: float) -> None:
        """It stands still."""
        ...

    def break_stream(self, worker: SimulatedWorker) -> None:
        """Its stream ends."""
        ...

    def drain_worker(self, worker: SimulatedWorker, grace_s: float, back_after_s: float) -> None:
        """It is told to end."""
        ...

    def switch_leader(self, away_s: float) -> None:
        """The leader dies, and later another leads."""
        ...

    def jump_clock(self, by_s: float) -> None:
        """The leader's clock jumps."""
        ...


class Faults:
    """Lets each kind of fault happen at random moments of its own."""

    def __init__(
        self,
        trace: FaultsTrace,
        until_s: float,
        *,
        agenda: Agenda,
        seed: int,
        workers: list[SimulatedWorker],
        victims: Victims,
    ) -> None:
        self._trace = trace
        self._until_us = microseconds(until_s)
        self._agenda = agenda
        self._seed = seed
        self._workers = workers
        self._victims = victims
        self.happened: dict[str, int] = {}

    def begin(self) -> None:
        """Plan the first fault of each kind."""
        trace = self._trace
        if trace.worker_loss is not None:
            self._every("worker_loss", trace.worker_loss.every_s, self._lose)
        if trace.pause is not None:
            self._every("pause", trace.pause.every_s, self._pause)
        if trace.slow_worker is not None:
            self._every("slow_worker", trace.slow_worker.every_s, self._slow)
        if trace.stream_break is not None:
            self._every("stream_break", trace.stream_break.every_s, self._break)
        if trace.drain is not None:
            self._every("drain", trace.drain.every_s, self._drain)
        if trace.scheduler_switch is not None:
            self._every("scheduler_switch", trace.scheduler_switch.every_s, self._switch)
        if trace.clock_jump is not None:
            self._every("clock_jump", trace.clock_jump.every_s, self._jump)

    def _every(self, name: str, every_s: float, act: Callable[[Random], None]) -> None:
        # A source of its own, so that one kind of fault does not move another.
        self._plan(name, every_s, act, Random(f"{self._seed}/faults/{name}"))

    def _plan(
        self, name: str, every_s: float, act: Callable[[Random], None], random: Random
    ) -> None:
        at_us = self._agenda.now_us + microseconds(random.expovariate(1.0 / every_s))
        if at_us <= self._until_us:
            self._agenda.at(at_us, self._happen, name, every_s, act, random)

    def _happen(
        self, name: str, every_s: float, act: Callable[[Random], None], random: Random
    ) -> None:
        self.happened[name] = self.happened.get(name, 0) + 1
        act(random)
        self._plan(name, every_s, act, random)

    def _living(self, random: Random) -> SimulatedWorker | None:
        living = [worker for worker in self._workers if worker.process is not None]
        return random.choice(living) if living else None

    def _lose(self, random: Random) -> None:
        fault, worker = self._trace.worker_loss, self._living(random)
        assert fault is not None
        back_after_s, silent = random.uniform(*fault.back_after_s), random.random() < fault.silent
        if worker is not None:
            self._victims.lose_worker(worker, back_after_s, silent)

    def _pause(self, random: Random) -> None:
        fault, worker = self._trace.pause, self._living(random)
        assert fault is not None
        for_s = random.uniform(*fault.for_s)
        if worker is not None:
            self._victims.pause_worker(worker, for_s)

    def _slow(self, random: Random) -> None:
        fault, worker = self._trace.slow_worker, self._living(random)
        assert fault is not None
        factor, for_s = random.uniform(*fault.factor), random.uniform(*fault.for_s)
        if worker is not None:
            worker.slowness = factor
            self._agenda.after(for_s, _quicken, worker)

    def _break(self, random: Random) -> None:
        worker = self._living(random)
        if worker is not None:
            self._victims.break_stream(worker)

    def _drain(self, random: Random) -> None:
        fault, worker = self._trace.drain, self._living(random)
        assert fault is not None
        back_after_s = random.uniform(*fault.back_after_s)
        if worker is not None:
            self._victims.drain_worker(worker, fault.grace_s, back_after_s)

    def _switch(self, random: Random) -> None:
        fault = self._trace.scheduler_switch
        assert fault is not None
        self._victims.switch_leader(random.uniform(*fault.away_s))

    def _jump(self, random: Random) -> None:
        fault = self._trace.clock_jump
        assert fault is not None
        self._victims.jump_clock(random.uniform(*fault.by_s))


def _quicken(worker: SimulatedWorker) -> None:
    worker.slowness = 1.0
