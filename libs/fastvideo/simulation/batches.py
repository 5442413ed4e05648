"""A batch on a simulated worker, from its first step to the end of its window."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fastvideo.requests.types import ErrorDetail
from fastvideo.scheduling.events import BatchExecuted, DispatchBatch
from fastvideo.scheduling.work import LoopRef, StepRange, StepResult
from fastvideo.simulation.agenda import MICROSECONDS
from fastvideo.simulation.loops import SimulatedLoop, batch_seconds

Scopes = Mapping[tuple[str, int], Mapping[str, SimulatedLoop]]
"""Loops by (request id, attempt) and node."""

_RELEASED: Final = ErrorDetail(reason="LOOP_RELEASED", message="the loop is not here")


@dataclass(frozen=True, slots=True)
class Claim:
    """A unit of the batch and the loop that it is of; None when there is none."""

    unit_id: str
    ref: LoopRef
    index: int
    loop: SimulatedLoop | None


@dataclass(frozen=True, slots=True)
class _Ran:
    """What a unit came to."""

    claim: Claim
    seconds: float
    version: int = 0
    digest: int = 0
    error: ErrorDetail | None = None


@dataclass(slots=True)
class BatchRun:
    """One batch that was given to a worker."""

    command: DispatchBatch
    received_us: int
    claims: list[Claim] = field(default_factory=list)
    ran: list[_Ran] = field(default_factory=list)
    begun_us: int = 0
    steps: int = 0
    yielded: bool = False

    @property
    def batch_id(self) -> str:
        """Its id."""
        return self.command.batch_id

    def begin(self, scopes: Scopes, now_us: int) -> None:
        """Claim the loops of its units."""
        self.begun_us = now_us
        for unit_id, ref in zip(self.command.unit_ids, self.command.loops, strict=True):
            loop = scopes.get((ref.request_id, ref.attempt), {}).get(ref.node_id)
            index = int(unit_id.rpartition("/")[2])
            if loop is not None and (loop.result is not None or index in loop.done):
                loop = None
            if loop is not None:
                loop.batch_id = self.batch_id
            self.claims.append(Claim(unit_id, ref, index, loop))

    def seconds(self) -> float:
        """What this step costs a worker of speed 1."""
        running = [claim.loop for claim in self.claims if claim.loop is not None]
        return batch_seconds(running) if running else 0.0

    def end_step(self, seconds: float, failing: Callable[[], ErrorDetail | None]) -> None:
        """Move its loops on by a unit each."""
        self.steps += 1
        following = []
        for claim in self.claims:
            loop = claim.loop
            error = _RELEASED if loop is None or loop.released else failing()
            if loop is None or error is not None:
                self.ran.append(_Ran(claim, seconds, error=error))
                continue
            loop.advance(claim.index)
            self.ran.append(_Ran(claim, seconds, loop.position, loop.digest))
            if loop.result is None and not loop.run.at_once:
                ref, index = claim.ref, loop.position
                unit_id = f"{ref.request_id}/{ref.node_id}/{ref.attempt}/{index}"
                following.append(Claim(unit_id, ref, index, loop))
        self.claims = following

    def goes_on(self, told_to_yield: bool) -> bool:
        """Whether another step follows in the window."""
        if not self.claims or self.steps >= max(1, self.command.window):
            return False
        released = any(claim.loop is not None and claim.loop.released for claim in self.claims)
        self.yielded = told_to_yield
        return not (told_to_yield or released)

    def executed(self, worker_id: str, now_us: int) -> BatchExecuted:
        """The report; the last result of each loop says what comes next."""
        last = {ran.claim.ref: ran for ran in self.ran}
        return BatchExecuted(
            worker_id=worker_id,
            batch_id=self.batch_id,
            kind=self.command.kind,
            results=tuple(_result(ran, last[ran.claim.ref] is ran) for ran in self.ran),
            predicted_seconds=self.command.predicted_seconds,
            measured_seconds=(now_us - self.begun_us) / MICROSECONDS,
            forwards=self.steps,
            waited_seconds=(self.begun_us - self.received_us) / MICROSECONDS,
            yielded=self.yielded,
        )

    def let_go(self) -> None:
        """Its loops are in no batch."""
        for ran in self.ran:
            loop = ran.claim.loop
            if loop is not None and loop.batch_id == self.batch_id:
                loop.batch_id = ""


def _result(ran: _Ran, is_last: bool) -> StepResult:
    claim, loop = ran.claim, ran.claim.loop
    if ran.error is not None or loop is None:
        return StepResult(
            unit_id=claim.unit_id,
            loop=claim.ref,
            error=ran.error,
            measured_seconds=ran.seconds,
        )
    ended = is_last and loop.result is not None
    return StepResult(
        unit_id=claim.unit_id,
        loop=claim.ref,
        state_version=ran.version,
        state_digest=f"{ran.digest:08x}",
        next_plan=loop.next_plan() if is_last and not ended else None,
        loop_result=loop.result if ended else None,
        step_range=StepRange(start=claim.index, stop=claim.index + 1, total=loop.run.units),
        measured_seconds=ran.seconds,
    )
