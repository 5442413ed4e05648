"""An engine's deployment card, made of the models that it has and of what it has measured."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Final

from fastvideo.deployment.card import (
    CostModel,
    DeploymentCard,
    EngineLoad,
    ModelPrior,
    RolePoolSpec,
    TransferEndpoint,
)
from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.model.specs import CapabilityMatrix, ParallelPlan

HEALTH: Final = ("grpc.health.v1", *(field.name for field in fields(EngineLoad)))
"""What is said of an engine's health: gRPC's own protocol, and the figures of its load."""

_CACHE_EVENT: Final = "trace.cache"


def deployment_card(
    engine_id: str,
    entries: Sequence[CatalogEntry],
    *,
    pools: Iterable[RolePoolSpec] = (),
    endpoints: Iterable[TransferEndpoint] = (),
    costs: CostModel,
    slo_targets: Mapping[str, float] | None = None,
) -> DeploymentCard:
    """The card of an engine that serves these models.

    `costs` is what the engine has measured; the models' first guesses are put beside it, so that
    whoever routes prices what nobody measured as the engine itself does. The card is a value: no
    two engines share a part of it that could change.
    """
    cards = [entry.card for entry in entries]
    plans: list[ParallelPlan] = []
    for card in cards:
        plans += [plan for plan in card.parallelism.valid_plans if plan not in plans]
    classes = {cache.cache_class.value for card in cards for cache in card.caches.values()}
    return DeploymentCard(
        engine_id=engine_id,
        model_specs=tuple(card.model_id for card in cards),
        capabilities=CapabilityMatrix(
            capabilities=tuple(
                sorted({name for card in cards for name in card.capabilities.capabilities})
            )
        ),
        role_pools=tuple(pools),
        supported_programs=tuple(sorted({name for entry in entries for name in entry.programs})),
        supported_parallel_plans=tuple(plans),
        cache_events=tuple(f"{_CACHE_EVENT}/{name}" for name in sorted(classes)),
        transfer_endpoints=tuple(endpoints),
        cost_model=replace(costs, priors=_priors(entries)),
        health_schema=HEALTH,
        slo_schema=dict(slo_targets or {}),
        card_digests={entry.card.model_id: entry.card_digest for entry in entries},
    )


def _priors(entries: Iterable[CatalogEntry]) -> tuple[ModelPrior, ...]:
    """Every first guess of the models; of two for one phase the first, as the scheduler has it."""
    found: dict[tuple[str, str], ModelPrior] = {}
    for entry in entries:
        for loop in entry.card.loops.values():
            for prior in (loop.cost, *(phase.cost for phase in loop.phases)):
                key = (entry.card.model_id, prior.phase)
                found.setdefault(key, ModelPrior(model_id=entry.card.model_id, prior=prior))
    return tuple(found.values())
