"""What a worker notes beside its reports: caches, transfers, memory, graphs, layers, behaviour.

Notes travel with a report and are events of their own in the log; no decision depends on them.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fastvideo.model.caching import CacheKey, CacheLookup
from fastvideo.model.transfers import TransferManifest
from fastvideo.requests.behavior import BehaviorRecord
from fastvideo.requests.types import ErrorDetail
from fastvideo.scheduling.work import StepRange


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAccess:
    """One look into a cache, or one eviction."""

    # Empty when no unit asked, as in most evictions.
    unit_id: str = ""
    request_id: str = ""
    lookup: CacheLookup
    # With a miss and with the entry that it led to, so that the digest can be derived again.
    key: CacheKey | None = None
    # The tier that answered or let go: "worker", "redis" or "artifact".
    tier: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAccessed:
    """trace.cache: looks, hits, misses and evictions of one batch or of memory pressure."""

    worker_id: str = ""
    accesses: tuple[CacheAccess, ...] = ()


class TransferState(StrEnum):
    """How far a transfer is."""

    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRecorded:
    """trace.transfer: something began to move, arrived, or failed to."""

    manifest: TransferManifest
    state: TransferState
    request_id: str = ""
    unit_id: str = ""
    size_bytes: int = 0
    seconds: float = 0.0
    error: ErrorDetail | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsChanged:
    """weights.changed: an instance of a model has other weights than the log knew."""

    worker_id: str = ""
    model_instance_id: str = ""
    model_id: str = ""
    card_digest: str = ""
    # Empty when the instance is new.
    from_version: str = ""
    # Empty when the instance is gone.
    to_version: str = ""
    adapter_versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityChecked:
    """parity.checked: a model or a machine was compared with what it must equal."""

    model_id: str = ""
    card_digest: str = ""
    # Rung of the ladder, "C0" to "C4".
    rung: str = ""
    # Such as "transformer", or "batch_invariance" of the machine.
    subject: str = ""
    reference: str = ""
    passed: bool = False
    max_abs_difference: float = 0.0
    tolerance: float = 0.0
    # Of the first step beyond the tolerance; None when there is none.
    first_step: int | None = None
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    worker_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentTrace:
    """What one component or layer did in a step."""

    # Such as "transformer", "guidance", "sampler".
    component: str = ""
    # Dotted path of a module within the component; empty is the component itself.
    layer: str = ""
    # Calls in the step.
    calls: int = 0
    seconds: float = 0.0
    # SHA-256 of the output's exact bytes for this unit, hexadecimal.
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentsTraced:
    """trace.component: the components of one unit's step; its layers are in a blob."""

    request_id: str = ""
    attempt: int = 0
    node_id: str = ""
    unit_id: str = ""
    step_range: StepRange = field(default_factory=StepRange)
    components: tuple[ComponentTrace, ...] = ()
    # SHA-256 of a blob with a ComponentTrace for every layer, in order of execution.
    layers_digest: str = ""
    layers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviorRecorded:
    """behavior.recorded: what a policy did for one sample, captured when it did it."""

    behavior_id: str = ""
    record: BehaviorRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteFound:
    """trace.nan: a tensor was not finite; the first of its request."""

    request_id: str = ""
    node_id: str = ""
    unit_id: str = ""
    step: int = 0
    component: str = ""
    layer: str = ""
    nans: int = 0
    infinities: int = 0
    elements: int = 0
    worker_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReported:
    """trace.memory: a pool's reservation, and what pressure drove out."""

    worker_id: str = ""
    # "weights", "activations", "caches" or "staging".
    pool: str = ""
    in_use_bytes: int = 0
    budget_bytes: int = 0
    evicted_bytes: int = 0
    # "reserved", "pressure", "slept", "woken".
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphUsed:
    """trace.graph: a forward was recorded as a graph, or recorded and refused."""

    worker_id: str = ""
    model_instance_id: str = ""
    component: str = ""
    # "captured", "replayed", "refused", "dropped".
    change: str = ""
    capture_shape: str = ""
    reason: str = ""


TraceNote = (
    CacheAccessed
    | TransferRecorded
    | ParityChecked
    | ComponentsTraced
    | BehaviorRecorded
    | NonFiniteFound
    | MemoryReported
    | GraphUsed
)
"""What a worker notes."""
