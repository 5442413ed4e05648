"""The files that a deployment's author writes beside the card: deployment.yaml and training.yaml.

model.yaml, loops.yaml and parallel.yaml together are a card (`fastvideo.model.specs.ModelSpec`),
programs.yaml holds programs (`fastvideo.program.specs.ProgramSpec`); what is here has no other
home. `fastvideo.deployment.project` reads and checks all six.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from fastvideo.deployment.card import RolePoolSpec, TransferEndpoint
from fastvideo.model.embedded import EMBEDDED_MODEL_ID
from fastvideo.model.specs import CacheContract, LoopSpec, ParallelPlan
from fastvideo.model.state_schemas import StateSchema
from fastvideo.program.specs import ProgramSpec
from fastvideo.requests.types import Capture
from fastvideo.scheduling.policy import SchedulingPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopsDocument:
    """loops.yaml: what the model does, step by step, and what it may cache."""

    loops: Mapping[str, LoopSpec] = field(default_factory=dict)
    # What loops of its own keep and give, by the name that they have as their state_schema.
    state_schemas: Mapping[str, StateSchema] = field(default_factory=dict)
    caches: Mapping[str, CacheContract] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelDocument:
    """parallel.yaml: how a model may be split, and where its components may be."""

    axes: tuple[str, ...] = ()
    valid_plans: tuple[ParallelPlan, ...] = ()
    # Component id to its placement policy; it wins over the component's own.
    placement: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramsDocument:
    """programs.yaml: how loops are composed for a task."""

    programs: tuple[ProgramSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSpec:
    """How values move between pools."""

    # Such as "grpc"; empty when nothing moves.
    backend: str = ""
    endpoints: tuple[TransferEndpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """Who routes to this engine."""

    # Empty is nobody; "dynamo" exports the deployment card to it.
    router: str = ""
    region: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentDocument:
    """deployment.yaml: what is served, by which pools, under which policy."""

    models: tuple[str, ...] = (EMBEDDED_MODEL_ID,)
    # Folder of the user's checkpoints, relative to the file; one subfolder a model.
    checkpoints: str = ""
    # Threads of a forward; 0 is found by a short probe.
    threads: int = 0
    # Memory that a worker may use, bytes; 0 is the machine's.
    memory_bytes: int = 0
    # Schedulers; one leads, the others stand by.
    schedulers: int = 1
    # Whether callers show API keys; else the gateway listens on this machine alone.
    keys: bool = False
    # Empty is one pool of workers that run everything.
    role_pools: tuple[RolePoolSpec, ...] = ()
    transport: TransportSpec = field(default_factory=TransportSpec)
    # SLO classes, tenants' weights and the other knobs: docs/scheduling.md.
    scheduling: SchedulingPolicy = field(default_factory=SchedulingPolicy)
    fleet: FleetSpec = field(default_factory=FleetSpec)

    @property
    def checkpoints_path(self) -> Path | None:
        """The folder of the checkpoints, if one is named."""
        return Path(self.checkpoints) if self.checkpoints else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSpec:
    """How samples are drawn: the loops that serve, with capture."""

    program_id: str = ""
    # Samples of one prompt.
    group_size: int = 1
    # Empty is the card's own.
    sampler: str = ""
    noise_level: float = 0.0
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSpec:
    """One reward and its weight in the sum."""

    name: str = ""
    # The program whose scores it takes.
    program_id: str = ""
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSpec:
    """How the policy is updated."""

    # The class in torch.optim, such as "AdamW".
    name: str = "AdamW"
    learning_rate: float = 0.0
    weight_decay: float = 0.0
    gradient_norm_max: float = 0.0


class SyncPolicy(StrEnum):
    """What becomes of loops that run when new weights come."""

    # They end with the weights that they began with.
    DRAIN = "drain"
    # They stop at their next boundary and begin again.
    BOUNDARY_STOP = "boundary_stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSyncSpec:
    """When serving weights follow the trained ones."""

    every_updates: int = 1
    policy: SyncPolicy = SyncPolicy.DRAIN
    # Components that are synchronised; empty is all that are trained.
    components: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDocument:
    """training.yaml: rollout, reward, optimizer, weight sync, behaviour capture."""

    # One of the methods of the card's training contract.
    method: str = ""
    rollout: RolloutSpec = field(default_factory=RolloutSpec)
    rewards: tuple[RewardSpec, ...] = ()
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    weight_sync: WeightSyncSpec = field(default_factory=WeightSyncSpec)
    capture: Capture | None = None
