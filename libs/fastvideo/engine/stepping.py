"""One step of a batch: the memory that it declares, one forward, each loop one state on."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from fastvideo.cache.features import TextFeatureCache
from fastvideo.clock import Clock
from fastvideo.engine.failures import failure_detail
from fastvideo.engine.footprint import resident_bytes
from fastvideo.engine.layer_shelf import LayerShelf
from fastvideo.engine.live import Claim, LiveLoop, LoopTable, may_stop_before
from fastvideo.engine.peaks import PeakBook
from fastvideo.engine.reservations import Reservations
from fastvideo.engine.residents import Kernel, Residents
from fastvideo.engine.tracing import is_traced, traced
from fastvideo.engine.values import ValueStore
from fastvideo.engine.weights import check_weights
from fastvideo.errors import Cancelled, ContractViolation, FastVideoError
from fastvideo.loops.contract import (
    LoopOutput,
    OutputStreams,
    SharedTier,
    StateBase,
    StepContext,
)
from fastvideo.loops.finite import find_non_finite
from fastvideo.loops.plans import check_plan
from fastvideo.scheduling.traces import CacheAccess, NonFiniteFound, TraceNote
from fastvideo.scheduling.work import (
    LoopRef,
    LoopResult,
    StepRange,
    StepResult,
    WorkPlan,
    WorkUnit,
)
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedUnit:
    """What one unit gave, and how its loop would go on."""

    claim: Claim
    # Without a plan: only the last result of a loop in a batch carries one.
    result: StepResult
    # None when the loop has ended, has failed, or runs another unit of the same step.
    plan: WorkPlan | None = None

    @property
    def ended(self) -> bool:
        """Whether the loop is to be freed."""
        return self.result.loop_result is not None or self.result.error is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: its units in order, and what they took together."""

    units: tuple[SteppedUnit, ...]
    forwards: int
    seconds: float
    # The activations' measured peak; 0 when it was not measured.
    peak_bytes: int = 0
    notes: tuple[TraceNote, ...] = ()
    accesses: tuple[CacheAccess, ...] = ()

    def loops(self, *, ended: bool) -> tuple[LiveLoop, ...]:
        """The loops that have ended, or those that have not."""
        gone = {id(unit.claim.loop) for unit in self.units if unit.ended}
        return tuple(
            unit.claim.loop
            for unit in self.units
            if unit.claim.loop is not None and (id(unit.claim.loop) in gone) is ended
        )


class Stepper:
    """Runs claimed units. A unit that fails carries its error and harms no other."""

    def __init__(
        self,
        *,
        reservations: Reservations,
        peaks: PeakBook,
        residents: Residents,
        features: TextFeatureCache,
        values: ValueStore,
        loops: LoopTable,
        clock: Clock,
        streams: OutputStreams,
        tier: SharedTier | None = None,
        watch_finite: bool = True,
        layers: LayerShelf | None = None,
    ) -> None:
        self._tier = tier
        # Whether a unit whose output is not finite fails at once.
        self._watch_finite = watch_finite
        # Where the layers of traced units go.
        self._layers = layers
        self._streams = streams
        self._reservations = reservations
        self._peaks = peaks
        self._residents = residents
        self._features = features
        self._values = values
        self._loops = loops
        self._clock = clock

    def step(self, claims: Sequence[Claim]) -> Step:
        """Run the units in one forward; each one's loop moves on. Raises nothing of a model's."""
        started_s = self._clock.monotonic_s()
        context = StepContext(tier=self._tier, streams=self._streams)
        try:
            # What the units read and write stays in the caches, however short memory gets.
            with torch.no_grad(), self._features.pinned(_cache_keys(claims)):
                units, peak_bytes = self._run(claims, context)
        finally:
            self._reservations.release(claims)
        return Step(
            units=units,
            forwards=context.forwards,
            seconds=self._clock.monotonic_s() - started_s,
            peak_bytes=peak_bytes,
            notes=tuple(context.notes),
            accesses=tuple(context.accesses),
        )

    def _run(
        self, claims: Sequence[Claim], context: StepContext
    ) -> tuple[tuple[SteppedUnit, ...], int]:
        """What each claim gave, in order, and the measured peak."""
        outputs: dict[str, Any] = {}
        peak_bytes = 0
        runnable = []
        for claim in claims:
            try:
                runnable.append(self._admit(claim, context))
            except FastVideoError as error:
                outputs[claim.unit_id] = error
        if runnable:
            context.cache = self._features.open(context)
            context.staging = self._reservations
            given, peak_bytes = self._forward_all(runnable, context)
            outputs |= given
        last = {claim.ref: claim.unit_id for claim in claims}
        stepped = []
        for claim in claims:
            output = outputs[claim.unit_id]
            try:
                unit = self._advance(claim, output, claim.unit_id == last[claim.ref], context)
            except Exception as error:  # noqa: BLE001 - one unit's failure stays its own
                log_failure(error, claim.ref, claim.unit_id)
                unit = SteppedUnit(claim=claim, result=_failed(claim, error))
            stepped.append(unit)
        return tuple(stepped), peak_bytes

    def _admit(self, claim: Claim, context: StepContext) -> Claim:
        """Take the memory that the unit declares. Raises what forbids it to run."""
        if claim.error is not None:
            raise claim.error
        assert claim.unit is not None
        if claim.loop is not None:
            unit, request = claim.unit, claim.loop.state.request
            check_weights(self._residents, request, unit.model_instance_id, unit.loop_id)
        self._reservations.admit(claim.unit, context)
        return claim

    def _forward_all(
        self, runnable: Sequence[Claim], context: StepContext
    ) -> tuple[dict[str, Any], int]:
        """As `_forward`; units that are traced in detail run one by one, watched."""
        watched = [claim for claim in runnable if is_traced(claim)]
        if not watched:
            return self._forward(runnable, context)
        plain = [claim for claim in runnable if not is_traced(claim)]
        outputs, peak_bytes = self._forward(plain, context) if plain else ({}, 0)
        for claim in watched:
            unit = claim.unit
            assert unit is not None
            work = functools.partial(self._forward, [claim], context)
            given, peak = traced(self._components(unit), unit, context, self._layers, work)
            outputs |= given
            peak_bytes = max(peak_bytes, peak)
        return outputs, peak_bytes

    def _components(self, unit: WorkUnit) -> Mapping[str, Any]:
        try:
            _, instance = self._residents.kernel(unit.model_instance_id, unit.loop_id)
        except FastVideoError:
            # The forward comes to the same end, and tells it.
            return {}
        return instance.components if instance is not None else {}

    def _forward(
        self, runnable: Sequence[Claim], context: StepContext
    ) -> tuple[dict[str, Any], int]:
        """Output or exception by unit id, and the measured peak."""
        batch = [
            (claim.loop.state, claim.unit)
            for claim in runnable
            if claim.loop is not None and claim.unit is not None
        ]
        units = [unit for _, unit in batch]
        unit = units[0]
        try:
            self._reservations.check(units)
            kernel, instance = self._residents.kernel(unit.model_instance_id, unit.loop_id)
            outputs, peak_bytes = self._peaks.run(
                units, context, lambda: kernel.run_step(batch, instance, context)
            )
            if len(outputs) != len(batch):
                raise ContractViolation(f"{len(outputs)} outputs of {len(batch)} units")
        except Exception as error:  # noqa: BLE001 - it is sorted out unit by unit
            if len(batch) == 1:
                return {unit.unit_id: error}, 0
            # Alone each gives the bits that it gives in a batch, so only the guilty one fails.
            alone: dict[str, Any] = {}
            for claim in runnable:
                alone |= self._forward([claim], context)[0]
            return alone, 0
        return dict(zip((unit.unit_id for unit in units), outputs, strict=True)), peak_bytes

    def _advance(self, claim: Claim, output: Any, last: bool, context: StepContext) -> SteppedUnit:
        """The unit's result, its loop moved on; `last` of its loop in this step plans anew."""
        if isinstance(output, Exception):
            raise output
        loop, unit = claim.loop, claim.unit
        assert loop is not None
        assert unit is not None
        kernel, instance = self._residents.kernel(loop.model_instance_id, loop.loop_id)
        if self._watch_finite:
            _check_finite(kernel, unit, output, context)
        state = kernel.advance(loop.state, unit, output)
        if state.version != loop.state.version + 1:
            raise ContractViolation(
                f"the state went from version {loop.state.version} to {state.version}",
                subject=unit.unit_id,
            )
        self._reservations.count_state(loop, state, context, unit.unit_id)
        plan, result = None, None
        if last:
            plan = kernel.plan_step(state, loop.plan_context)
        if last and loop.released and (loop.forced or plan is None or may_stop_before(plan.units)):
            raise Cancelled(f"the loop of {unit.unit_id} was released", reason="LOOP_RELEASED")
        if plan is not None:
            plan = self._peaks.declare(plan)
            check_plan(plan, state, kernel.spec)
            self._loops.move(loop, state, plan.units)
        elif last:
            result = self._end(loop, state, unit, kernel.finalize(state, instance))
        else:
            loop.state = state
        step_result = StepResult(
            unit_id=unit.unit_id,
            loop=loop.ref,
            state_version=state.version,
            state_digest=hashlib.sha256(kernel.state_bytes(state)).hexdigest(),
            cache_lookups=tuple(context.lookups.get(unit.unit_id, ())),
            artifact_ids=tuple(context.artifacts.get(unit.unit_id, ())),
            loop_result=result,
            step_range=unit.step_range,
        )
        return SteppedUnit(claim=claim, result=step_result, plan=plan)

    def _end(
        self, loop: LiveLoop, state: StateBase, unit: WorkUnit, output: LoopOutput
    ) -> LoopResult:
        scope = (loop.ref.request_id, loop.ref.attempt)
        for name, value in output.values.items():
            evicted = self._values.put(scope, f"{loop.ref.node_id}.{name}", value, role=loop.role)
            self._reservations.tell(scope, evicted)
        result = LoopResult(
            loop=loop.ref,
            value_names=tuple(output.values),
            artifact_ids=output.artifact_ids,
            digests=output.digests,
            scores=output.scores,
            value_bytes={name: resident_bytes(value) for name, value in output.values.items()},
        )
        self._loops.end(loop, state, unit.step_range.total, result)
        return result


def _check_finite(kernel: Kernel, unit: WorkUnit, output: Any, context: StepContext) -> None:
    """Raise ContractViolation (NON_FINITE) for an output that is not finite, and note it."""
    found = find_non_finite(kernel, output)
    if found is None:
        return
    component = found.component or unit.loop_id
    context.notes.append(
        NonFiniteFound(
            request_id=unit.loop.request_id,
            node_id=unit.loop.node_id,
            unit_id=unit.unit_id,
            step=unit.step_range.start,
            component=component,
            nans=found.nans,
            infinities=found.infinities,
            elements=found.elements,
        )
    )
    raise ContractViolation(
        f"{component} gave {found.nans} NaN and {found.infinities} infinite of {found.elements} "
        f"{found.field} in step {unit.step_range.start} of {unit.loop.node_id}",
        reason="NON_FINITE",
        subject=unit.unit_id,
        attributes={
            "component": component,
            "node": unit.loop.node_id,
            "step": str(unit.step_range.start),
        },
    )


def log_failure(error: Exception, ref: LoopRef, unit_id: str = "") -> None:
    """An unforeseen exception goes to the log with its stack; a typed one is an answer."""
    if not isinstance(error, FastVideoError):
        _LOG.error(
            "unit failed" if unit_id else "loop not prepared",
            exc_info=error,
            unit_id=unit_id,
            request_id=ref.request_id,
            node_id=ref.node_id,
        )


def _failed(claim: Claim, error: Exception) -> StepResult:
    return StepResult(
        unit_id=claim.unit_id,
        loop=claim.ref,
        state_version=claim.loop.state.version if claim.loop is not None else 0,
        error=failure_detail(error),
        step_range=claim.unit.step_range if claim.unit is not None else StepRange(),
    )


def _cache_keys(claims: Sequence[Claim]) -> list[str]:
    plans = [claim.unit.cache_plan for claim in claims if claim.unit is not None]
    return [digest for plan in plans for digest in {*plan.reads, *plan.writes}]
