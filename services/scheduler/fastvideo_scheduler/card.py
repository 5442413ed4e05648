"""The deployment card: what this shard's workers offer, and at what price."""

import asyncio
from collections import Counter
from typing import Final

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

# Prices that are worked out before whoever schedules has a turn: a fraction of a millisecond.
_ENTRIES_A_TURN: Final = 16


async def engine_offer(engine_id: str, catalog: Catalog, core: SchedulerCore | None) -> EngineOffer:
    """The card and the load of what is attached now; `core` is None while nobody leads here."""
    costs = await _costs(core) if core is not None else CostModel()
    card = deployment_card(engine_id, catalog, core, costs)
    return EngineOffer(card=card, load=core.load if core is not None else EngineLoad())


async def _costs(core: SchedulerCore) -> CostModel:
    """The cost model as it is meanwhile: thousands of prices, and units go on being dispatched."""
    entries = []
    for entry in core.cost_entries():
        entries.append(entry)
        if len(entries) % _ENTRIES_A_TURN == 0:
            await asyncio.sleep(0)
    return CostModel(entries=tuple(entries))


def deployment_card(
    engine_id: str, catalog: Catalog, core: SchedulerCore | None, costs: CostModel
) -> DeploymentCard:
    """The card alone, with what was measured."""
    if core is None:
        return offer.deployment_card(engine_id, (), costs=costs)
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
        costs=costs,
        slo_targets=core.slo_targets,
    )
