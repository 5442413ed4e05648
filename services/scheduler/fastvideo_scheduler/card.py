"""The deployment card: what this shard's workers offer, and at what price."""

from collections import Counter

from fastvideo.deployment import offer
from fastvideo.deployment.card import (
    WORKER_ROLE,
    CostModel,
    DeploymentCard,
    EngineLoad,
    EngineOffer,
    RolePoolSpec,
    TransferEndpoint,
)
from fastvideo.deployment.catalog import Catalog
from fastvideo.scheduling.core import SchedulerCore


def engine_offer(engine_id: str, catalog: Catalog, core: SchedulerCore | None) -> EngineOffer:
    """The card and the load of what is attached now; `core` is None while nobody leads here."""
    card = deployment_card(engine_id, catalog, core)
    return EngineOffer(card=card, load=core.load if core is not None else EngineLoad())


def deployment_card(engine_id: str, catalog: Catalog, core: SchedulerCore | None) -> DeploymentCard:
    """The card alone."""
    if core is None:
        return offer.deployment_card(engine_id, (), costs=CostModel())
    pools = Counter(
        (worker.role or WORKER_ROLE, tuple(sorted(worker.models))) for worker in core.workers
    )
    attached = {model_id for worker in core.workers for model_id in worker.models}
    return offer.deployment_card(
        engine_id,
        [entry for entry in catalog.entries if entry.card.model_id in attached],
        pools=(
            RolePoolSpec(role=role, replicas=replicas, models=models)
            for (role, models), replicas in sorted(pools.items())
        ),
        # A worker takes what others send on the address where it is commanded.
        endpoints=(
            TransferEndpoint(backend="grpc", address=worker.address) for worker in core.workers
        ),
        costs=core.cost_model,
        slo_targets=core.slo_targets,
    )
