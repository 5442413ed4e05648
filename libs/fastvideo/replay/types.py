"""What a replay is given and what it answers.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.model.caching import CacheLookup
from fastvideo.requests.behavior import BehaviorRecord
from fastvideo.requests.types import RequestSpec, RequestStatus
from fastvideo.scheduling.traces import CacheAccess, ComponentsTraced
from fastvideo.scheduling.work import ModelState, StepRange


class ReplayKind(StrEnum):
    """The question that a replay answers."""

    # What did the system know at an offset: fold the log, compare with the projections.
    STATE = "state"
    # Why did the scheduler do that: feed the logged inputs to the core, compare decisions.
    DECISION = "decision"
    # Does the request give the same bits today: run its loops, compare digests.
    EXECUTION = "execution"
    # Was every hit legitimate: derive keys again, compute hits again.
    CACHE = "cache"
    # Is a sample's log-probability what the policy gives: recompute on its trajectory.
    BEHAVIOR = "behavior"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """What to run again, and how to compare."""

    kind: ReplayKind
    # Request, session or "scheduler" (state, decision), request (execution, cache) or behaviour
    # id or request (behavior). Empty is everything, where that has a meaning.
    subject_id: str = ""
    # State: partition to offset up to which to fold; absent is the end.
    until: Mapping[int, int] = field(default_factory=dict)
    # Decision: another policy as YAML; its waits and utilisation are compared.
    policy: str = ""
    # Of cache hits, the share that is computed again, 0 to 1; 0 takes 1.
    sample: float = 0.0
    # Largest absolute difference that passes where bits are not promised; 0 takes the card's.
    tolerance: float = 0.0
    # Also compare layer by layer where the log has the layers.
    detail: bool = False
    # Comparisons in the report beside those that differ; 0 takes 200.
    comparisons_max: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProgress:
    """How far a replay is."""

    done: int = 0
    # 0 when it is not known.
    total: int = 0
    # What is being done, such as "denoise 7/20".
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One thing compared."""

    # Such as "denoise 7/20", "decision 41", "request req_...".
    subject: str = ""
    equal: bool = False
    expected: str = ""
    found: str = ""
    # Largest absolute difference, where tensors were compared.
    max_abs_difference: float | None = None
    node_id: str = ""
    step: int | None = None
    component: str = ""
    layer: str = ""
    # Of the logged event.
    event_id: str = ""
    # In words, for a person.
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What may be expected of a replay, and why."""

    # "bits", "tolerance" or "none".
    kind: str = ""
    tolerance: float = 0.0
    # In words: the fingerprints agree, or what differs.
    reason: str = ""
    # Fingerprint entries that differ: name to "then -> now".
    differences: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """Figures of one policy over the same inputs."""

    # "logged", "logged_simulated" or "what_if".
    policy: str = ""
    requests: int = 0
    wait_seconds_p50: float = 0.0
    wait_seconds_p95: float = 0.0
    total_seconds_p50: float = 0.0
    total_seconds_p95: float = 0.0
    # Device-seconds used over device-seconds there were, 0 to 1.
    utilisation: float = 0.0
    mean_batch_size: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """The answer."""

    kind: ReplayKind
    subject_id: str = ""
    # Nothing differs beyond what the promise allows.
    equal: bool = False
    promise: Promise
    compared: int = 0
    differing: int = 0
    # The first that differs.
    first_divergence: Comparison | None = None
    # Those that differ, and up to the asked number of the others.
    comparisons: tuple[Comparison, ...] = ()
    seconds: float = 0.0
    # What the original took for the same work; 0 when it is not known.
    original_seconds: float = 0.0
    # In one sentence.
    headline: str = ""
    # Decision replay under another policy.
    policies: tuple[PolicyFigures, ...] = ()
    # State replay: name of a fold to its digest.
    digests: Mapping[str, str] = field(default_factory=dict)
    # W3C traceparent of the original, which the replay's span links to.
    original_traceparent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """One logged step of a run."""

    node_id: str = ""
    loop_id: str = ""
    unit_id: str = ""
    state_version: int = 0
    step_range: StepRange = field(default_factory=StepRange)
    state_digest: str = ""
    measured_seconds: float = 0.0
    batch_size: int = 0
    cache_lookups: tuple[CacheLookup, ...] = ()
    components: ComponentsTraced | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """What the log says of a request's accepted run: all that a worker needs to do it again."""

    spec: RequestSpec
    status: RequestStatus
    attempt: int = 0
    instance: ModelState
    # Of the workers that ran it, the last one's.
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    # In order of execution; steps that were done again by a later attempt once.
    steps: tuple[LoggedStep, ...] = ()
    latents_digest: str = ""
    behaviors: tuple[BehaviorRecord, ...] = ()
    accesses: tuple[CacheAccess, ...] = ()
    traceparent: str = ""
    original_seconds: float = 0.0
    # Scores that the run ended with, by name.
    scores: Mapping[str, float] = field(default_factory=dict)
    # Artifacts that the run stored, as completed.
    artifacts: tuple[ArtifactRecord, ...] = ()
