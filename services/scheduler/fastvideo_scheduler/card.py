"""The deployment card: what this shard's workers offer, and at what price."""

from collections import Counter

from fastvideo.deployment.card import WORKER_ROLE, CostModel, DeploymentCard, RolePoolSpec
from fastvideo.deployment.catalog import Catalog
from fastvideo.model.specs import CapabilityMatrix
from fastvideo.scheduling.core import SchedulerCore


def deployment_card(engine_id: str, catalog: Catalog, core: SchedulerCore | None) -> DeploymentCard:
    """The card of what is attached now; `core` is None while nobody leads here."""
    workers = core.workers if core is not None else ()
    pools = Counter(
        (worker.role or WORKER_ROLE, tuple(sorted(worker.models))) for worker in workers
    )
    attached = {model_id for worker in workers for model_id in worker.models}
    entries = [entry for entry in catalog.entries if entry.card.model_id in attached]
    capabilities = {name for entry in entries for name in entry.card.capabilities.capabilities}
    return DeploymentCard(
        engine_id=engine_id,
        model_specs=tuple(entry.card.model_id for entry in entries),
        capabilities=CapabilityMatrix(capabilities=tuple(sorted(capabilities))),
        role_pools=tuple(
            RolePoolSpec(role=role, replicas=replicas, models=models)
            for (role, models), replicas in sorted(pools.items())
        ),
        supported_programs=tuple(sorted({name for entry in entries for name in entry.programs})),
        supported_parallel_plans=tuple(
            plan for entry in entries for plan in entry.card.parallelism.valid_plans
        ),
        cost_model=core.cost_model if core is not None else CostModel(),
        health_schema=("grpc.health.v1",),
        slo_schema=core.slo_targets if core is not None else {},
    )
