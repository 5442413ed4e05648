"""What an in-process engine runs, batch by batch."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fastvideo.engine.engine import Engine
from fastvideo.engine.results import Generation, RequestHandle
from fastvideo.scheduling.commands import ExecuteBatch
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import StepResult, UnitKind

POCKET = "tests.families.pocket"
WAIT_S_MAX = 120.0


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One batch: what the executor said of it, on which thread, and when it began."""

    executed: BatchExecuted
    thread: str
    began_s: float
    ended_s: float
    reserved: dict[str, float]

    @property
    def kind(self) -> UnitKind:
        """The kind of its units."""
        return self.executed.kind

    @property
    def size(self) -> int:
        """How many requests shared it."""
        return len({result.loop.request_id for result in self.executed.results})


@dataclass
class Log:
    """Every batch in the order of their ends; safe from any thread."""

    batches: list[Ran] = field(default_factory=list)

    def kinds(self, request_id: str) -> list[UnitKind]:
        """The kind of each unit of a request."""
        return [
            ran.kind
            for ran in self.batches
            for result in ran.executed.results
            if result.loop.request_id == request_id
        ]

    def of(self, request_id: str) -> list[StepResult]:
        """A request's results."""
        return [
            result
            for ran in self.batches
            for result in ran.executed.results
            if result.loop.request_id == request_id
        ]

    def digests(self, request_id: str) -> list[tuple[str, str]]:
        """Node and digest of each state that a request went through."""
        return [(result.loop.node_id, result.state_digest) for result in self.of(request_id)]

    def named(self, request_id: str) -> dict[str, str]:
        """The digests that a request's loops ended with, as node.name."""
        return {
            f"{result.loop.node_id}.{name}": digest
            for result in self.of(request_id)
            if result.loop_result is not None
            for name, digest in result.loop_result.digests.items()
        }


@contextmanager
def logged(engine: Engine) -> Iterator[Log]:
    """Note every batch that the engine executes inside the block."""
    log, execute, lock = Log(), engine._executor.execute, threading.Lock()

    def watched(command: ExecuteBatch) -> BatchExecuted:
        began_s, reserved = time.monotonic(), dict(engine._core.reserved)
        executed = execute(command)
        with lock:
            log.batches.append(
                Ran(
                    executed=executed,
                    thread=threading.current_thread().name,
                    began_s=began_s,
                    ended_s=time.monotonic(),
                    reserved=reserved,
                )
            )
        return executed

    engine._executor.execute = watched  # type: ignore[method-assign]
    try:
        yield log
    finally:
        engine._executor.execute = execute  # type: ignore[method-assign]


@contextmanager
def standing_still(engine: Engine) -> Iterator[None]:
    """Begin no batch inside the block: what is asked for there is there before any of it runs."""
    execute, goes_on = engine._executor.execute, threading.Event()

    def waiting(command: ExecuteBatch) -> BatchExecuted:
        goes_on.wait()
        return execute(command)

    engine._executor.execute = waiting  # type: ignore[method-assign]
    try:
        yield
    finally:
        engine._executor.execute = execute  # type: ignore[method-assign]
        goes_on.set()


def run(engine: Engine, *asked: dict[str, Any]) -> tuple[list[Generation], Log]:
    """Ask for all at once and wait for all."""
    with logged(engine) as log:
        with standing_still(engine):
            handles: list[RequestHandle] = [engine.submit(**options) for options in asked]
        return [handle.result(WAIT_S_MAX) for handle in handles], log
