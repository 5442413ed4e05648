"""What a simulation is given: workers, models, classes of requests, policy, network and faults.

Times end in `_s` and are seconds of virtual time. Where a field holds several values, each
request or fault draws one of them, all alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import UnitKind

Between = tuple[float, float]
"""The least and the most of something that is drawn evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTrace:
    """One loop of a model: its units, and what a forward of them costs.

    A forward takes `base_s + token_s * tokens` seconds, where tokens are summed over the units
    that share it, each with its guidance branches.
    """

    kind: UnitKind = UnitKind.DIFFUSION_STEP
    # How many units: a number, or "steps", "texts", "latent_frames", "outputs", "sigmas".
    units: int | str = "steps"
    base_s: float | None = None
    token_s: float | None = None
    # Tokens of one unit and branch; 0 takes them from the request's shape.
    tokens: int = 0
    max_batch: int = 1
    # Each unit computes the guidance branches of its request.
    guided: bool = False
    # All units are ready at once rather than one after another.
    at_once: bool = False
    # Cancel and preempt may land between units.
    cancel_boundary: bool = True
    # Units after each that are certain to follow; 0 means nothing is.
    certain: bool = True
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    # Blocks that a unit needs; with `keeps_blocks` each step adds so many, and the loop keeps
    # them until it ends.
    cache_blocks: int = 0
    keeps_blocks: bool = False
    staging_bytes: int = 0
    stream_slots: int = 0
    # Size of a snapshot of its state.
    state_bytes: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTrace:
    """A node of a program that is written in the trace."""

    loop: str
    after: tuple[str, ...] = ()
    weight: float = 1.0
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTrace:
    """A model: a card of the catalog, a program of its own, or a card with other costs."""

    # A model id of the catalog, whose programs and loops are taken.
    card: str = ""
    # Loops by id; over those of the card.
    loops: Mapping[str, LoopTrace] = field(default_factory=dict)
    # The program "main", by node; only without a card.
    program: Mapping[str, NodeTrace] = field(default_factory=dict)
    prepare_s: float = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTrace:
    """Workers that are alike."""

    count: int
    models: tuple[str, ...]
    # How fast; the values go round over the workers. 2.0 takes half the time.
    speeds: tuple[float, ...] = (1.0,)
    compute_slots: int = 1
    io_slots: int = 2
    role: str = ""
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    joins_at_s: float = 0.0
    # When it is told to end what it has and go; never by default.
    drains_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Requests come one by one, independent of each other."""

    kind: Literal["poisson"]
    per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """Many requests come at once, every so often."""

    kind: Literal["bursts"]
    every_s: float
    size: int
    # A burst is spread over this long.
    spread_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Daily:
    """The rate swings between two values; it is lowest at the start."""

    kind: Literal["daily"]
    per_s_low: float
    per_s_high: float
    period_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    """A number of requests at one moment."""

    kind: Literal["at_once"]
    count: int
    at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Requests as a running stack saw them: the lines of `fastvideo request arrivals`."""

    kind: Literal["recorded"]
    # Beside the trace's own file.
    file: str
    # 2.0 lets them come twice as fast.
    speed: float = 1.0


Arrivals = Annotated[
    Poisson | Bursts | Daily | AtOnce | Recorded,
    Field(discriminator="kind"),
]
"""When the requests of a class come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTrace:
    """Requests that are alike."""

    model: str
    arrivals: tuple[Arrivals, ...]
    # The default program of a generation when it is empty.
    program: str = ""
    tenants: tuple[str, ...] = ("",)
    priority: int = 0
    # Seconds after acceptance.
    deadline_s: float | None = None
    steps: tuple[int, ...] = (20,)
    # Width, height and frames, such as "832x480x81".
    shapes: tuple[str, ...] = ("48x48x9",)
    guidance_scales: tuple[float, ...] = (3.0,)
    # Requests of the class in one session; 0 is none in any.
    session_size: int = 0
    # Share of requests that are cancelled, and how long after acceptance.
    cancelled: float = 0.0
    cancelled_after_s: Between = (0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTrace:
    """The streams between scheduler and workers: ordered each, independent of each other."""

    delay_s: Between = (0.0002, 0.001)
    # Silence after which either side gives the other up.
    silence_s: float = 5.0
    # How long a worker needs to be found and dialled again.
    redial_s: Between = (0.1, 1.0)
    # How long a leader waits for a worker whose stream broke before it counts as lost.
    grace_s: float = 5.0
    # How long a worker keeps its loops without a leader.
    keep_s: float = 30.0
    # How long what was decided takes to be committed.
    commit_s: float = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoss:
    """A worker's process dies; another begins in its place."""

    # Mean time between two of them, over all workers.
    every_s: float
    back_after_s: Between = (1.0, 10.0)
    # Share of the deaths that are only seen by silence.
    silent: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A worker stands still (SIGSTOP) and goes on."""

    every_s: float
    for_s: Between = (0.5, 20.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowness:
    """A worker takes longer for everything, for a while."""

    every_s: float
    for_s: Between = (5.0, 60.0)
    factor: Between = (2.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBreak:
    """A stream ends and all that was on its way is lost; both sides live."""

    every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A worker is told to end, ends what it has, and begins anew."""

    every_s: float
    grace_s: float = 30.0
    back_after_s: Between = (1.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSwitch:
    """The leader dies and another leads; what was not committed is lost."""

    every_s: float
    away_s: Between = (0.2, 3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockJump:
    """The leader's clock jumps; a clock stays where it jumped to."""

    every_s: float
    by_s: Between = (-60.0, 60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultsTrace:
    """What goes wrong, drawn from the seed, until the arrivals end."""

    worker_loss: WorkerLoss | None = None
    pause: Pause | None = None
    slow_worker: Slowness | None = None
    stream_break: StreamBreak | None = None
    drain: Drain | None = None
    scheduler_switch: SchedulerSwitch | None = None
    clock_jump: ClockJump | None = None
    # Shares of reports that come twice, and that come although their stream has ended.
    duplicate_report: float = 0.0
    late_report: float = 0.0
    # Shares of units and of loops that fail.
    failing_unit: float = 0.0
    failing_loop: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A world to be simulated."""

    description: str = ""
    # Requests come and faults happen during this time; then the world runs to its end.
    duration_s: float
    # Every request must have ended this long after.
    settle_s: float = 3_600.0
    # How far the seconds of a forward scatter, as a share of them.
    noise: float = 0.02
    models: Mapping[str, ModelTrace]
    pools: Mapping[str, PoolTrace]
    classes: Mapping[str, ClassTrace]
    policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)
    network: NetworkTrace = field(default_factory=NetworkTrace)
    faults: FaultsTrace = field(default_factory=FaultsTrace)
