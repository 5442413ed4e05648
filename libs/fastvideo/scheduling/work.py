"""WorkUnits, plans and results: what loops offer and workers run.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fastvideo.model.caching import CacheLookup
from fastvideo.requests.types import ErrorDetail


class UnitKind(StrEnum):
    """The kinds of schedulable work."""

    AR_TOKEN = "ar_token"
    AR_PREFILL = "ar_prefill"
    DIFFUSION_STEP = "diffusion_step"
    DIFFUSION_WINDOW = "diffusion_window"
    ENCODER_CHUNK = "encoder_chunk"
    VAE_TILE = "vae_tile"
    AUDIO_CHUNK = "audio_chunk"
    REWARD_BATCH = "reward_batch"
    LOGPROB_BATCH = "logprob_batch"
    TRANSFER_SEND = "transfer_send"
    TRANSFER_RECV = "transfer_recv"
    CACHE_LOAD = "cache_load"
    CACHE_SAVE = "cache_save"
    ARTIFACT_WRITE = "artifact_write"
    GRAPH_CAPTURE = "graph_capture"
    CHUNK_STEP = "chunk_step"


OFF_STEP_PATH: Final = frozenset(
    {
        UnitKind.ARTIFACT_WRITE,
        UnitKind.CACHE_LOAD,
        UnitKind.CACHE_SAVE,
        UnitKind.TRANSFER_SEND,
        UnitKind.TRANSFER_RECV,
    }
)
"""Kinds that wait for a store or a wire: they run beside compute and take no window of it."""


class CancelScopeKind(StrEnum):
    """What a cancellation is aimed at."""

    REQUEST = "request"
    LOOP = "loop"
    STREAM = "stream"
    SESSION = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelScope:
    """A structured cancellation target."""

    kind: CancelScopeKind
    # The request, "request/node", stream or session that is meant.
    target_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRef:
    """One run of one loop of one request on one worker."""

    request_id: str = ""
    node_id: str = ""
    # 1 for the first try.
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRange:
    """The steps that a unit covers: start <= step < stop, of total."""

    start: int = 0
    stop: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """What a unit needs before it may run."""

    # A window on the device's compute; false for units off the step path.
    compute: bool = False
    # Bytes by memory pool tag.
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    cache_blocks: int = 0
    transfer_bytes: int = 0
    # The graph shape to be captured; empty when none is.
    capture_shape: str = ""
    # Places in the output stream.
    stream_slots: int = 0
    staging_bytes: int = 0
    # Places in a role pool, by role.
    role_slots: Mapping[str, int] = field(default_factory=dict)
    # The cache blocks are what the loop holds from this unit on until it ends.
    cache_blocks_kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlan:
    """The cache keys that a unit reads and writes, by digest."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementHint:
    """Where a unit may run."""

    role: str = ""
    # Stay with the worker that holds the loop's state.
    sticky: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSink:
    """Where a unit's output goes."""

    # "value" (kept on the worker), "artifact" or "stream".
    kind: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkUnit:
    """The smallest schedulable action: a resource reservation and a loop boundary."""

    unit_id: str = ""
    loop: LoopRef
    session_id: str = ""
    program_id: str = ""
    loop_id: str = ""
    model_instance_id: str = ""
    kind: UnitKind
    step_range: StepRange
    # Units whose batch keys are equal may share one forward.
    batch_key: str = ""
    # The most units that may share it; 1 forbids batching.
    max_batch: int = 0
    # Phase and shape under which the cost model knows the unit.
    cost_phase: str = ""
    cost_shape: str = ""
    resources: ResourceRequest
    cache_plan: CachePlan
    placement_hint: PlacementHint
    output_sinks: tuple[OutputSink, ...] = ()
    # True when cancel and preempt may land before this unit.
    cancel_boundary: bool = False
    # How many units after this one are certain to follow whatever this one computes.
    unconditional_next: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """What a loop wants to run next."""

    loop: LoopRef
    # Bumped by every state transition; a plan is for one version only.
    state_version: int = 0
    # The units that are ready now; a loop in sequence offers one.
    units: tuple[WorkUnit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState:
    """A loop's declared, versioned state, without its tensors."""

    loop: LoopRef
    loop_id: str = ""
    schema: str = ""
    version: int = 0
    position: StepRange
    # SHA-256 of the exact state bytes.
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelState:
    """What is known of a model's resident state."""

    model_instance_id: str = ""
    model_id: str = ""
    card_digest: str = ""
    weights_version: str = ""
    adapter_versions: Mapping[str, str] = field(default_factory=dict)
    precision: str = ""
    parallel_plan_hash: str = ""
    weights_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopResult:
    """What an ended loop leaves behind."""

    loop: LoopRef
    # Names of the values that stay on the worker for the next node.
    value_names: tuple[str, ...] = ()
    # Ids of artifacts that were stored.
    artifact_ids: tuple[str, ...] = ()
    # Name to hexadecimal digest, such as "latents".
    digests: Mapping[str, str] = field(default_factory=dict)
    # Name to figure, such as a score.
    scores: Mapping[str, float] = field(default_factory=dict)
    # Bytes of each value that stays, by its name; what a move of it is priced by.
    value_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one executed unit gave."""

    unit_id: str = ""
    loop: LoopRef
    state_version: int = 0
    # SHA-256 of the state bytes after the step.
    state_digest: str = ""
    cache_lookups: tuple[CacheLookup, ...] = ()
    # The next units, unless the loop has ended.
    next_plan: WorkPlan | None = None
    # Set when the loop has ended.
    loop_result: LoopResult | None = None
    # Set when the unit failed; then neither of the two above is.
    error: ErrorDetail | None = None
    # The steps that the unit covered.
    step_range: StepRange = field(default_factory=StepRange)
    # Seconds of the batched step that the unit ran in.
    measured_seconds: float = 0.0
    # Artifacts that the unit stored, also when its loop is cancelled after it.
    artifact_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSnapshot:
    """One loop of an attempt at a boundary, saved as a blob.

    The blob holds its state, or the outputs of one that had ended.
    """

    # The run that was saved.
    loop: LoopRef
    loop_id: str = ""
    # The loop had ended; the blob holds its outputs.
    ended: bool = False
    state_version: int = 0
    steps_done: int = 0
    steps: int = 0
    # The loop's state schema, and the version of the encoding around it.
    schema: str = ""
    format: int = 0
    # SHA-256 of the blob, which is its name in the blob store.
    digest: str = ""
    size_bytes: int = 0
    # SHA-256 of the exact state bytes; empty for outputs.
    state_digest: str = ""
    # What a worker must have to go on with it.
    card_digest: str = ""
    weights_version: str = ""
    # What the loop left behind, when it had ended.
    loop_result: LoopResult | None = None
