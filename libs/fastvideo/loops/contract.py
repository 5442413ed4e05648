"""The LoopKernel contract: model code owns control flow, the runtime owns execution.

A loop is driven through five methods and hides no `for t in timesteps`:

    state = kernel.init_state(request, inputs, instance)
    while (plan := kernel.plan_step(state, context)) is not None:
        [output] = kernel.run_step([(state, unit)], instance, context)   # or many at once
        state = kernel.advance(state, unit, output)
    result = kernel.finalize(state, instance)

Rules, which `fastvideo.loops.suite` checks for any kernel:

- `init_state` binds typed state; it runs no step.
- `plan_step` is pure: no kernel runs, nothing changes, the same state gives the same plan.
  Its units declare resources, cache reads and writes, capture shape, placement, sinks and
  the cancel boundary. None means that nothing is left to run.
- `run_step` computes a batch of units of any requests whose batch keys agree. It changes
  no state. A batch of one gives the bits that any batch gives.
- `advance` is the only state transition: a new state, its version one higher.
- `finalize` gives the outputs by name.
- A state can be saved at any boundary, loaded elsewhere, and gone on from with equal bits: see
  `fastvideo.loops.snapshots`.

This module imports no torch: tensors are opaque to the contract.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from fastvideo.model.caching import CacheKey, CacheLookup
from fastvideo.model.specs import LoopSpec
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.traces import CacheAccess, TraceNote
from fastvideo.scheduling.work import LoopRef, WorkPlan, WorkUnit

State = TypeVar("State", bound="StateBase")
Output = TypeVar("Output")

Values = Mapping[str, Any]
"""Named values on the worker: tensors, tensor tuples, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBase:
    """What every loop state has: whose it is, and a version that each transition bumps."""

    loop: LoopRef
    request: RequestSpec
    version: int = 0


class FeatureCache(Protocol):
    """Look-ups by key during a step; each is reported in the step's result."""

    def get(self, key: CacheKey) -> Any | None:
        """The cached value, or None."""
        ...

    def put(self, key: CacheKey, value: Any) -> None:
        """Keep a value under its key."""
        ...


class SharedTier(Protocol):
    """Bytes by key digest beyond this worker; what it has lost is computed again."""

    # Such as "redis".
    name: str

    def get(self, digest: str) -> bytes | None:
        """The bytes, or None."""
        ...

    def put(self, digest: str, data: bytes) -> bool:
        """Keep bytes; whether they are kept."""
        ...


class Staging(Protocol):
    """Host memory for bytes that a unit makes to hand them out, such as an encoded file."""

    def stage(self, unit: WorkUnit, size_bytes: int) -> None:
        """Count so many bytes for the unit, in place of what it declared, until it has ended.

        Raises OutOfMemory.
        """
        ...


class Taps(Protocol):
    """Is told what a unit's components gave, where its request is traced in detail."""

    def output(self, component: str, value: Any) -> None:
        """Take what a component that is no module gave for the unit that runs."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Take nothing of what runs within, such as a probe of the machine."""
        ...


class OutputStreams(Protocol):
    """Which outputs are still wanted; it may change while a step runs."""

    def is_cancelled(self, loop: LoopRef, name: str) -> bool:
        """Whether nothing more is to be written of a loop's output."""
        ...


@dataclass(slots=True, kw_only=True)
class StepContext:
    """What a step may use beside its states; one a batch."""

    cache: FeatureCache | None = None
    staging: Staging | None = None
    # For units of the kinds cache_load and cache_save: see `fastvideo.cache.tiers`.
    tier: SharedTier | None = None
    # For units that write: the streams that nobody wants any more.
    streams: OutputStreams | None = None
    # Set by the kernel before it uses the cache: the unit whose look-ups these are.
    unit: WorkUnit | None = None
    # Filled by the cache: unit id to its look-ups.
    lookups: dict[str, list[CacheLookup]] = field(default_factory=dict)
    # Filled by caches: the same looks and what was kept, with keys, values' digests and tiers.
    accesses: list[CacheAccess] = field(default_factory=list)
    # Filled by a kernel that writes: unit id to the artifacts that it stored.
    artifacts: dict[str, list[str]] = field(default_factory=dict)
    # Filled by the kernel: forwards of the model that the batch took.
    forwards: int = 0
    # Filled by anybody: what the log shall have beside the step's results.
    notes: list[TraceNote] = field(default_factory=list)
    # Set while the batch is one unit that is traced in detail.
    taps: Taps | None = None

    def tap(self, component: str, value: Any) -> None:
        """Tell what a component that is no module gave; it costs nothing where nobody asked."""
        if self.taps is not None:
            self.taps.output(component, value)

    def untapped(self) -> AbstractContextManager[None]:
        """For what a kernel does beside its units' work."""
        return nullcontext() if self.taps is None else self.taps.paused()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """What a plan may depend on beside the state."""

    model_instance_id: str
    program_id: str = ""
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOutput:
    """What an ended loop hands on."""

    # Kept on the worker for the next node.
    values: Values = field(default_factory=dict)
    # Name to hexadecimal digest, such as "latents".
    digests: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    artifact_ids: tuple[str, ...] = ()


@runtime_checkable
class LoopKernel(Protocol, Generic[State, Output]):
    """A named model behaviour that the runtime drives step by step."""

    spec: LoopSpec

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: Any
    ) -> State:
        """Typed state before the first step.

        Raises InvalidField when the request asks for what the loop cannot do.
        """
        ...

    def plan_step(self, state: State, context: PlanContext) -> WorkPlan | None:
        """The next units, or None when nothing is left to run."""
        ...

    def run_step(
        self, batch: Sequence[tuple[State, WorkUnit]], instance: Any, context: StepContext
    ) -> Sequence[Output]:
        """One output a unit, in order."""
        ...

    def advance(self, state: State, unit: WorkUnit, output: Output) -> State:
        """The state after the unit, its version one higher."""
        ...

    def finalize(self, state: State, instance: Any) -> LoopOutput:
        """The loop's outputs."""
        ...

    def state_bytes(self, state: State) -> bytes:
        """The exact bytes of the state's tensors and position, for its digest."""
        ...
