"""The contract suite of loops: run it on any kernel, with a few real requests.

    report = check_loop(kernel, instance, [LoopCase(request=..., inputs=...), ...])

It drives the cases alone, then interleaved step by step, then in shared batches that start
at different times, and raises ContractViolation naming the rule that was broken:

| reason             | rule                                                                  |
|--------------------|-----------------------------------------------------------------------|
| INIT_RUNS_STEPS    | `init_state` binds state: no module runs, few tensor operations       |
| PLAN_IMPURE        | planning runs no kernel, changes nothing, and gives the same plan again|
| INCOMPLETE_PLAN    | a plan declares all that the runtime reserves                         |
| RUN_CHANGES_STATE  | `run_step` changes no state                                           |
| BAD_TRANSITION     | `advance` makes a new state, its version one higher, the old one whole|
| UNTYPED_RESULT     | outputs are typed objects, and `finalize` gives a LoopOutput          |
| NOT_REPEATABLE     | the same case gives the same bits again                               |
| INTERLEAVING_MIXES | requests in turns give the bits of requests alone                     |
| BATCHING_MIXES     | requests in shared batches give the bits of requests alone            |
| BEYOND_RUNG        | or differ by no more than the rung that is declared for them          |
| EMPTY_OUTPUT       | a loop runs a unit or more and hands something on; nothing is no pass |
| NOT_RESUMABLE      | a state saved at any boundary and loaded goes on with equal bits      |
| UNDECLARED_STATE   | with a schema: a state and a step hold the tensors that it declares   |
| TENSOR_MISMATCH    | and these have the dimensions and the dtype that it declares          |
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import torch

from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import (
    LoopKernel,
    LoopOutput,
    PlanContext,
    StateBase,
    StepContext,
    Values,
)
from fastvideo.loops.declared import check_state, check_step
from fastvideo.loops.divergence import max_abs_difference
from fastvideo.loops.plans import check_plan
from fastvideo.loops.snapshot_format import decode
from fastvideo.loops.snapshots import load_state, save_state
from fastvideo.loops.state_encoding import tensor_digest
from fastvideo.loops.watching import watching
from fastvideo.model.specs import ParityTestSpec
from fastvideo.model.state_schemas import StateSchema
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef, WorkUnit

INIT_OPERATIONS_MAX: Final = 256
UNITS_MAX: Final = 10_000

Kernel = LoopKernel[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopCase:
    """A request, and the values that its loop starts from."""

    request: RequestSpec
    inputs: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopReport:
    """What a kernel that keeps the contract did."""

    # Units of each case.
    units: tuple[int, ...]
    # The most units that shared a batch.
    batch_max: int
    # Forwards of all cases driven alone, and in shared batches.
    forwards_alone: int
    forwards_shared: int


@dataclass(slots=True)
class _Run:
    """One case on its way."""

    state: Any
    # Digest of the state after each step.
    digests: list[str]
    output: LoopOutput | None = None


def check_loop(
    kernel: Kernel,
    instance: Any,
    cases: Sequence[LoopCase],
    make_context: Callable[[], StepContext] = StepContext,
    rung: ParityTestSpec | None = None,
    schema: StateSchema | None = None,
) -> LoopReport:
    """Check that a kernel keeps the contract, with two cases or more.

    `make_context` gives the context of each batch, with a cache where the kernel needs one.
    `rung` is what the card declares of shared batches; without one they are exact. `schema` is
    the one that the loop's state is declared by (`Catalog` has those of a family).
    Raises ContractViolation; its reason is the rule that was broken.
    """
    if len(cases) < 2:
        raise ContractViolation("the suite needs two cases or more", subject="cases")
    suite = _Suite(kernel, instance, make_context)
    with torch.no_grad():
        suite.schema = schema
        alone = [suite.drive_alone(index, case) for index, case in enumerate(cases)]
        # What is declared does not change by company.
        suite.schema = None
        forwards_alone, suite.forwards = suite.forwards, 0
        again = suite.drive_alone(0, cases[0])
        suite.expect_equal("NOT_REPEATABLE", alone[:1], [again])
        suite.expect_equal("INTERLEAVING_MIXES", alone, suite.drive_in_turns(cases))
        moved = [suite.drive_moved(index, case) for index, case in enumerate(cases)]
        suite.expect_equal("NOT_RESUMABLE", alone, moved)
        suite.forwards = 0
        shared = suite.drive_shared(cases)
    if rung is None or rung.max_abs_difference == 0.0:
        suite.expect_equal("BATCHING_MIXES", alone, shared)
    else:
        suite.expect_near(alone, shared, rung.max_abs_difference)
    return LoopReport(
        units=tuple(len(run.digests) for run in alone),
        batch_max=suite.batch_max,
        forwards_alone=forwards_alone,
        forwards_shared=suite.forwards,
    )


class _Suite:
    def __init__(
        self, kernel: Kernel, instance: Any, make_context: Callable[[], StepContext]
    ) -> None:
        self._kernel = kernel
        self._instance = instance
        self._make_context = make_context
        self._plan_context = PlanContext(model_instance_id="suite", program_id="suite")
        self.forwards = 0
        self.batch_max = 0
        self.schema: StateSchema | None = None

    def drive_alone(self, index: int, case: LoopCase) -> _Run:
        """One case from start to end, every rule of a single loop checked on the way."""
        run = self._start(index, case)
        while (units := self._plan(run)) is not None:
            for unit in units:
                self._step([run], [unit])
        self._finish(run)
        return run

    def drive_moved(self, index: int, case: LoopCase) -> _Run:
        """One case, its state saved and loaded as another attempt's at every boundary."""
        run = self._start(index, case)
        while True:
            self._move(run)
            units = self._plan(run)
            if units is None:
                break
            self._step([run], units[:1])
        self._finish(run)
        return run

    def drive_in_turns(self, cases: Sequence[LoopCase]) -> list[_Run]:
        """All cases, one unit each in turn."""
        runs = [self._start(index, case) for index, case in enumerate(cases)]
        left = list(runs)
        while left:
            left = [run for run in left if self._turn(run)]
        for run in runs:
            self._finish(run)
        return runs

    def drive_shared(self, cases: Sequence[LoopCase]) -> list[_Run]:
        """All cases, each started one round after the one before, in shared batches."""
        runs: list[_Run] = []
        waiting = list(enumerate(cases))
        moved = True
        while waiting or moved:
            if waiting:
                runs.append(self._start(*waiting.pop(0)))
            moved = self._round(runs)
        for run in runs:
            self._finish(run)
        return runs

    def expect_equal(self, reason: str, alone: Sequence[_Run], other: Sequence[_Run]) -> None:
        """Raise for the first case and step whose state differs."""
        for case, (wanted, found) in enumerate(zip(alone, other, strict=True)):
            if len(wanted.digests) != len(found.digests):
                self._fail(reason, f"case {case} took {len(found.digests)} steps")
            for step, (left, right) in enumerate(zip(wanted.digests, found.digests, strict=True)):
                if left != right:
                    self._fail(reason, f"case {case} first differs at step {step}")

    def expect_near(self, alone: Sequence[_Run], other: Sequence[_Run], tolerance: float) -> None:
        """Raise for the first case and value whose difference is larger."""
        for case, (wanted, found) in enumerate(zip(alone, other, strict=True)):
            left, right = _values(wanted), _values(found)
            if left.keys() != right.keys():
                self._fail("BEYOND_RUNG", f"case {case} hands on {sorted(right)}")
            for name in left:
                apart = _apart(left[name], right[name])
                if not apart <= tolerance:
                    found_far = f"case {case}: {name} differs by {apart:g}"
                    self._fail("BEYOND_RUNG", f"{found_far}; the rung allows {tolerance:g}")

    def _start(self, index: int, case: LoopCase) -> _Run:
        ref = LoopRef(request_id=f"suite-{index}", node_id=self._kernel.spec.loop_id, attempt=1)
        with watching() as watch:
            state = self._kernel.init_state(ref, case.request, case.inputs, self._instance)
        if watch.modules or watch.operations > INIT_OPERATIONS_MAX:
            self._fail(
                "INIT_RUNS_STEPS",
                f"{watch.modules} modules and {watch.operations} tensor operations ran in init",
            )
        if not isinstance(state, StateBase) or state.version != 0 or state.loop != ref:
            self._fail("BAD_TRANSITION", "init must give a StateBase of the loop at version 0")
        if self.schema is not None:
            check_state(self._kernel, self.schema, state)
        return _Run(state, [])

    def _plan(self, run: _Run) -> tuple[WorkUnit, ...] | None:
        if len(run.digests) > UNITS_MAX:
            self._fail("INCOMPLETE_PLAN", f"the loop has not ended after {UNITS_MAX} units")
        before = fingerprint(run.state)
        with watching() as watch:
            plan = self._kernel.plan_step(run.state, self._plan_context)
            again = self._kernel.plan_step(run.state, self._plan_context)
        if watch.modules or watch.operations:
            self._fail("PLAN_IMPURE", f"{watch.operations} tensor operations ran in planning")
        if plan != again:
            self._fail("PLAN_IMPURE", "planning twice gave two plans")
        if fingerprint(run.state) != before:
            self._fail("PLAN_IMPURE", "planning changed the state")
        if plan is None:
            return None
        check_plan(plan, run.state, self._kernel.spec)
        return plan.units

    def _step(self, runs: Sequence[_Run], units: Sequence[WorkUnit]) -> None:
        before = [fingerprint(run.state) for run in runs]
        context = self._make_context()
        batch = [(run.state, unit) for run, unit in zip(runs, units, strict=True)]
        outputs = self._kernel.run_step(batch, self._instance, context)
        self.forwards += context.forwards
        self.batch_max = max(self.batch_max, len(batch))
        if len(outputs) != len(batch):
            self._fail("UNTYPED_RESULT", f"{len(outputs)} outputs of {len(batch)} units")
        if [fingerprint(run.state) for run in runs] != before:
            self._fail("RUN_CHANGES_STATE", "run_step changed a state")
        for run, unit, output in zip(runs, units, outputs, strict=True):
            self._advance(run, unit, output)

    def _advance(self, run: _Run, unit: WorkUnit, output: Any) -> None:
        if isinstance(output, (dict, list)) or output is None:
            self._fail("UNTYPED_RESULT", f"run_step gave a {type(output).__name__}")
        before = fingerprint(run.state)
        state = self._kernel.advance(run.state, unit, output)
        if fingerprint(run.state) != before or state is run.state:
            self._fail("BAD_TRANSITION", "advance changed the state in place")
        if type(state) is not type(run.state) or state.version != run.state.version + 1:
            self._fail("BAD_TRANSITION", f"version {run.state.version} became {state.version}")
        if state.loop != run.state.loop or state.request != run.state.request:
            self._fail("BAD_TRANSITION", "the state changed its owner")
        if self.schema is not None:
            check_step(self._kernel, self.schema, output)
            check_state(self._kernel, self.schema, state)
        run.state = state
        run.digests.append(hashlib.sha256(self._kernel.state_bytes(state)).hexdigest())

    def _finish(self, run: _Run) -> None:
        if not run.digests:
            self._fail("EMPTY_OUTPUT", "the loop ran no unit, so nothing was compared")
        output = self._kernel.finalize(run.state, self._instance)
        if not isinstance(output, LoopOutput):
            self._fail("UNTYPED_RESULT", f"finalize gave a {type(output).__name__}")
        if not (output.values or output.digests or output.scores or output.artifact_ids):
            self._fail("EMPTY_OUTPUT", "finalize handed nothing on")
        for name, value in output.values.items():
            if _is_empty(value):
                self._fail("EMPTY_OUTPUT", f"{name} is empty")
        run.output = output

    def _move(self, run: _Run) -> None:
        before = fingerprint(run.state)
        data = save_state(self._kernel, run.state)
        if fingerprint(run.state) != before:
            self._fail("NOT_RESUMABLE", "saving changed the state")
        loop = dataclasses.replace(run.state.loop, attempt=run.state.loop.attempt + 1)
        state = load_state(self._kernel, decode(data), loop, run.state.request, self._instance)
        if type(state) is not type(run.state) or state.loop != loop:
            self._fail("NOT_RESUMABLE", f"a {type(state).__name__} was loaded")
        if state.version != run.state.version:
            self._fail("NOT_RESUMABLE", f"version {run.state.version} became {state.version}")
        if self._kernel.state_bytes(state) != self._kernel.state_bytes(run.state):
            self._fail("NOT_RESUMABLE", f"the state of version {state.version} has other bytes")
        if save_state(self._kernel, state) != data:
            self._fail("NOT_RESUMABLE", "what was loaded is saved as other bytes")
        run.state = state

    def _turn(self, run: _Run) -> bool:
        units = self._plan(run)
        if units is None:
            return False
        self._step([run], units[:1])
        return True

    def _round(self, runs: Sequence[_Run]) -> bool:
        """One unit of every case that has one, in as few batches as the units allow."""
        ready: dict[str, list[tuple[_Run, WorkUnit]]] = {}
        for run in runs:
            units = self._plan(run)
            if units is not None:
                ready.setdefault(units[0].batch_key, []).append((run, units[0]))
        for group in ready.values():
            while group:
                size = 1
                while size < len(group) and _fits(group[: size + 1]):
                    size += 1
                part, group = group[:size], group[size:]
                self._step([run for run, _ in part], [unit for _, unit in part])
        return bool(ready)

    def _fail(self, reason: str, found: str) -> NoReturn:
        loop_id = self._kernel.spec.loop_id
        raise ContractViolation(f"loop {loop_id}: {found}", reason=reason, subject=loop_id)


def fingerprint(value: object) -> str:
    """A digest of everything inside a value: fields, items, tensors' bytes."""
    digest = hashlib.sha256()
    for part in _parts(value):
        digest.update(part)
        digest.update(b"\x00")
    return digest.hexdigest()


def _parts(value: object) -> Iterator[bytes]:
    yield type(value).__name__.encode()
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype}{tuple(value.shape)}{tensor_digest(value)}".encode()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield field.name.encode()
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield repr(key).encode()
            yield from _parts(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _parts(item)
    else:
        yield repr(value).encode()


def _values(run: _Run) -> Values:
    return run.output.values if run.output is not None else {}


def _is_empty(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 0
    return isinstance(value, (tuple, list, bytes, Mapping)) and not value


def _apart(left: object, right: object) -> float:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return max_abs_difference(left, right)
    return 0.0 if fingerprint(left) == fingerprint(right) else float("inf")


def _fits(group: Sequence[tuple[_Run, WorkUnit]]) -> bool:
    return len(group) <= min(unit.max_batch for _, unit in group)
