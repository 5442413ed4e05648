"""Whether the files of a project fit together: pools, programs, transport, training."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fastvideo.deployment.authoring import DeploymentDocument, TrainingDocument
from fastvideo.deployment.card import WORKER_ROLE, RolePoolSpec
from fastvideo.model.specs import ModelSpec
from fastvideo.program.specs import EdgeKind, ProgramSpec
from fastvideo.program.validation import card_program_problems
from fastvideo.requests.types import Capture

Problem = tuple[str, str, str]
"""File, key, fault."""

TRANSPORTS: Final = ("grpc",)
"""The ways in which values move between workers."""

ROUTERS: Final = ("", "dynamo")

# These carry values that must move when their ends are in different pools.
_MOVED: Final = frozenset({EdgeKind.TENSOR, EdgeKind.CACHE, EdgeKind.STREAM, EdgeKind.BEHAVIOR})


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was read, each part sound by itself."""

    card: ModelSpec | None
    cards: Mapping[str, ModelSpec]
    # Model id to its programs.
    programs: Mapping[str, Mapping[str, ProgramSpec]]
    deployment: DeploymentDocument


def cross_problems(checked: Checked, training: TrainingDocument | None) -> Iterator[Problem]:
    """What does not fit."""
    yield from _programs(checked)
    yield from _pools(checked)
    yield from _transport(checked)
    yield from _scheduling(checked)
    if training is not None:
        yield from _training(checked, training)


def _programs(checked: Checked) -> Iterator[Problem]:
    card = checked.card
    if card is None:
        return
    own = checked.programs.get(card.model_id, {})
    if card.model_id in checked.cards and not own:
        able = ", ".join(card.capabilities.capabilities) or "nothing"
        yield "programs.yaml", "programs", f"none is for what {card.model_id} can do: {able}"
    for program in own.values():
        for key, fault in card_program_problems(program, card).items():
            yield "programs.yaml", f"programs.{program.program_id}.{key}", fault


def _pools(checked: Checked) -> Iterator[Problem]:
    pools = checked.deployment.role_pools
    for index, pool in enumerate(pools):
        key = f"role_pools.{index}"
        if not pool.role:
            yield "deployment.yaml", f"{key}.role", "is empty"
        if pool.replicas < 1:
            yield "deployment.yaml", f"{key}.replicas", f"is {pool.replicas}; allowed: 1 or more"
        if any(_overlap(pool, other) for other in pools[:index]):
            yield "deployment.yaml", f"{key}.role", f"{pool.role!r} is there twice for a model"
        for model_id in pool.models:
            if model_id not in checked.cards:
                yield "deployment.yaml", f"{key}.models", f"{model_id!r} is not among the models"
    if not pools:
        return
    for model_id, programs in checked.programs.items():
        for program in programs.values():
            yield from _unserved(checked.deployment, model_id, program)


def _overlap(pool: RolePoolSpec, other: RolePoolSpec) -> bool:
    """Whether two pools are of one role for a model; one that names none serves all."""
    if pool.role != other.role:
        return False
    return not (pool.models and other.models) or not set(pool.models).isdisjoint(other.models)


def _unserved(
    deployment: DeploymentDocument, model_id: str, program: ProgramSpec
) -> Iterator[Problem]:
    roles = _roles_of(deployment, model_id)
    for node in program.nodes:
        if not node.loop_id or WORKER_ROLE in roles or node.role in roles:
            continue
        wanted = node.role or WORKER_ROLE
        where = f"{model_id}: {program.program_id}.{node.node_id}"
        yield "deployment.yaml", "role_pools", f"no pool has the role {wanted!r} that {where} needs"


def _roles_of(deployment: DeploymentDocument, model_id: str) -> frozenset[str]:
    """The roles of the pools that serve a model; a pool that names none serves all."""
    pools = deployment.role_pools
    return frozenset(pool.role for pool in pools if not pool.models or model_id in pool.models)


def _transport(checked: Checked) -> Iterator[Problem]:
    transport = checked.deployment.transport
    if transport.backend and transport.backend not in TRANSPORTS:
        yield (
            "deployment.yaml",
            "transport.backend",
            f"is {transport.backend!r}; allowed: {', '.join(TRANSPORTS)}",
        )
    for index, endpoint in enumerate(transport.endpoints):
        if endpoint.backend not in TRANSPORTS:
            key = f"transport.endpoints.{index}.backend"
            yield "deployment.yaml", key, f"is {endpoint.backend!r}; allowed: {TRANSPORTS[0]}"
    if transport.backend:
        return
    for model_id, programs in checked.programs.items():
        for program in programs.values():
            yield from _unmoved(checked.deployment, model_id, program)


def _unmoved(
    deployment: DeploymentDocument, model_id: str, program: ProgramSpec
) -> Iterator[Problem]:
    roles = _roles_of(deployment, model_id)
    if not roles or WORKER_ROLE in roles:
        return
    of_node = {node.node_id: node.role for node in program.nodes}
    for edge in program.edges:
        source, target = of_node.get(edge.source_node, ""), of_node.get(edge.target_node, "")
        if edge.kind in _MOVED and source != target:
            where = f"{edge.value} of {model_id}: {program.program_id}"
            yield (
                "deployment.yaml",
                "transport.backend",
                f"is empty, and {where} moves from role {source!r} to {target!r}",
            )


def _scheduling(checked: Checked) -> Iterator[Problem]:
    deployment = checked.deployment
    for key, least in (("schedulers", 1), ("threads", 0), ("memory_bytes", 0)):
        if getattr(deployment, key) < least:
            fault = f"is {getattr(deployment, key)}; allowed: {least} or more"
            yield "deployment.yaml", key, fault
    if deployment.fleet.router not in ROUTERS:
        allowed = ", ".join(repr(name) for name in ROUTERS)
        yield (
            "deployment.yaml",
            "fleet.router",
            f"is {deployment.fleet.router!r}; allowed: {allowed}",
        )
    roles = {pool.role for pool in deployment.role_pools}
    for name, known in deployment.scheduling.slo_classes.items():
        if known.pool and known.pool not in roles:
            key = f"scheduling.slo_classes.{name}.pool"
            yield "deployment.yaml", key, f"{known.pool!r} is none of the role pools"


def _training(checked: Checked, training: TrainingDocument) -> Iterator[Problem]:
    file, rollout = "training.yaml", training.rollout
    if not training.method:
        yield file, "method", "is empty"
    found = [
        (checked.cards[model_id], programs[rollout.program_id])
        for model_id, programs in checked.programs.items()
        if rollout.program_id in programs
    ]
    if not found:
        yield file, "rollout.program_id", f"{rollout.program_id!r} is no program of the models"
        return
    card, program = found[0]
    if card.training is not None and training.method not in card.training.methods:
        allowed = ", ".join(card.training.methods)
        yield file, "method", f"is {training.method!r}; {card.model_id} supports {allowed}"
    samplers = ("", card.sampler, *card.samplers)
    if rollout.sampler not in samplers:
        allowed = ", ".join(filter(None, samplers))
        yield file, "rollout.sampler", f"is {rollout.sampler!r}; {card.model_id} offers {allowed}"
    if rollout.group_size < 1:
        yield file, "rollout.group_size", f"is {rollout.group_size}; allowed: 1 or more"
    if training.capture is Capture.BEHAVIOR:
        loops = [card.loops[node.loop_id] for node in program.nodes if node.loop_id in card.loops]
        if not any(loop.behavior_record_schema for loop in loops):
            yield file, "capture", f"no loop of {program.program_id} records behaviour"
    yield from _rewards(checked, training)
    for component in training.weight_sync.components:
        if component not in card.components:
            fault = f"{component!r} is no component of {card.model_id}"
            yield file, "weight_sync.components", fault
    if training.optimizer.learning_rate <= 0:
        yield file, "optimizer.learning_rate", "is not above 0"


def _rewards(checked: Checked, training: TrainingDocument) -> Iterator[Problem]:
    known = {name for programs in checked.programs.values() for name in programs}
    for index, reward in enumerate(training.rewards):
        key = f"rewards.{index}"
        if not reward.name:
            yield "training.yaml", f"{key}.name", "is empty"
        if reward.program_id not in known:
            fault = f"{reward.program_id!r} is no program of the models"
            yield "training.yaml", f"{key}.program_id", fault
