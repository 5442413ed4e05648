"""What an engine offers to whoever routes to it.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fastvideo.model.specs import CapabilityMatrix, CostPrior, ParallelPlan

WORKER_ROLE: Final = "worker"
"""The role of a worker that runs every loop of its models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePoolSpec:
    """How many replicas of a role serve which models."""

    role: str = ""
    replicas: int = 0
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardCost:
    """What forwards of so many units took."""

    units: int = 0
    seconds: float = 0.0
    samples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEntry:
    """Predicted device-seconds of one phase at one shape."""

    model_id: str = ""
    phase: str = ""
    shape: str = ""
    seconds: float = 0.0
    # Mean absolute error relative to measurement, 0 to 1.
    relative_error: float = 0.0
    samples: int = 0
    # What was measured, by the number of units of a forward.
    forwards: tuple[ForwardCost, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrior:
    """A model's first guess at a phase, for what nobody measured."""

    model_id: str = ""
    prior: CostPrior


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Predicted device-seconds; one object for admission and for fleet routing.

    `fastvideo.scheduling.cost.CardCosts` prices with it as the engine that made it does.
    """

    # In the order in which they were first measured.
    entries: tuple[CostEntry, ...] = ()
    priors: tuple[ModelPrior, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferEndpoint:
    """Where tensors can be sent."""

    backend: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentCard:
    """What an engine offers to whoever routes to it."""

    engine_id: str = ""
    model_specs: tuple[str, ...] = ()
    capabilities: CapabilityMatrix
    role_pools: tuple[RolePoolSpec, ...] = ()
    supported_programs: tuple[str, ...] = ()
    supported_parallel_plans: tuple[ParallelPlan, ...] = ()
    cache_events: tuple[str, ...] = ()
    transfer_endpoints: tuple[TransferEndpoint, ...] = ()
    cost_model: CostModel
    health_schema: tuple[str, ...] = ()
    # Class of service to the seconds in which its requests shall end.
    slo_schema: Mapping[str, float] = field(default_factory=dict)
    # Model id to the digest of its card.
    card_digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """What an engine has to do now, and what it has at hand."""

    # Predicted device-seconds of all that was accepted and has not run.
    backlog_seconds: float = 0.0
    # Places of workers that take new requests, over which the backlog is spread.
    compute_slots: int = 0
    live_requests: int = 0
    queued_requests: int = 0
    # Models on workers that take new requests.
    ready_models: tuple[str, ...] = ()
    # What its workers have cached, the latest last: texts and sessions, by digest or id.
    warm_keys: tuple[str, ...] = ()
    # How far predictions were off lately, 0 to 1, and how many were compared.
    prediction_error: float = 0.0
    predictions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOffer:
    """An engine as whoever routes sees it."""

    card: DeploymentCard
    load: EngineLoad
