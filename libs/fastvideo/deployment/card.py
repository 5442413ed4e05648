"""What an engine offers to whoever routes to it.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fastvideo.model.specs import CapabilityMatrix, ParallelPlan

WORKER_ROLE: Final = "worker"
"""The role of a worker that runs every loop of its models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePoolSpec:
    """How many replicas of a role serve which models."""

    role: str = ""
    replicas: int = 0
    models: tuple[str, ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Predicted device-seconds; one object for admission and for fleet routing."""

    entries: tuple[CostEntry, ...] = ()


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
    slo_schema: Mapping[str, float] = field(default_factory=dict)
