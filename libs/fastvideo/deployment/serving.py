"""What a stack has to run so that it is what a folder's files say.

What the files ask for and no stack of one machine does is refused, with the file and the key: a
deployment is never started as something else than what it says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastvideo.deployment.card import WORKER_ROLE
from fastvideo.deployment.catalog import Catalog
from fastvideo.deployment.project import DEPLOYMENT, InvalidProject, Project, ProjectFault
from fastvideo.scheduling.policy import SchedulingPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedStack:
    """The parts of a stack that files or a command line decide about."""

    models: tuple[str, ...]
    # The models of each worker.
    workers: tuple[tuple[str, ...], ...]
    schedulers: int = 1
    # Threads of a forward; 0 is found by a short probe.
    threads: int = 0
    # Bytes; 0 is the machine's.
    memory_bytes: int = 0
    checkpoints: Path | None = None
    # Import names, and the folder of a project that has a model of its own.
    families: tuple[str, ...] = ()
    # None leaves it to the environment.
    policy: SchedulingPolicy | None = None
    keys: bool = False


def stack_of_models(
    models: Sequence[str], *, checkpoints: Path | None = None, families: Sequence[str] = ()
) -> ServedStack:
    """One worker that serves models.

    Raises NotFound for a model that no card has and CheckpointError for one without weights.
    """
    catalog = Catalog.load(tuple(models), checkpoints, packages=tuple(families))
    for entry in catalog.entries:
        entry.require_checkpoint()
    return ServedStack(
        models=tuple(models),
        workers=(tuple(models),),
        checkpoints=checkpoints,
        families=tuple(families),
    )


def stack_of_project(
    project: Project, *, checkpoints: Path | None = None, families: Sequence[str] = ()
) -> ServedStack:
    """The stack that a folder describes. Raises InvalidProject with all that cannot be had."""
    deployment = project.deployment
    folder = project.folder.absolute()
    own = (str(folder),) if project.card is not None else ()
    root = checkpoints or (folder / deployment.checkpoints if deployment.checkpoints else None)
    models = tuple(project.cards)
    packages = (*families, *own)
    faults = [*_pools(project), *_elsewhere(project), *_weights(models, root, packages)]
    if faults:
        raise InvalidProject(faults)
    return ServedStack(
        models=models,
        workers=tuple(
            pool.models or models for pool in deployment.role_pools for _ in range(pool.replicas)
        )
        or (models,),
        schedulers=deployment.schedulers,
        threads=deployment.threads,
        memory_bytes=deployment.memory_bytes,
        checkpoints=root,
        families=packages,
        policy=deployment.scheduling,
        keys=deployment.keys,
    )


def _pools(project: Project) -> Iterator[ProjectFault]:
    for index, pool in enumerate(project.deployment.role_pools):
        if pool.role != WORKER_ROLE:
            fault = f"{pool.role!r} runs some nodes only, which no worker does yet; allowed: worker"
            yield ProjectFault(DEPLOYMENT, f"role_pools.{index}.role", fault)
    for name, known in project.deployment.scheduling.slo_classes.items():
        if known.mesh:
            key = f"scheduling.slo_classes.{name}.mesh"
            yield ProjectFault(DEPLOYMENT, key, "is set, and every worker here is one device")


def _elsewhere(project: Project) -> Iterator[ProjectFault]:
    """What others than a stack of one machine do."""
    deployment = project.deployment
    if deployment.fleet.router:
        fault = f"{deployment.fleet.router!r} routes to no stack of one machine; leave it out"
        yield ProjectFault(DEPLOYMENT, "fleet.router", fault)
    if deployment.fleet.region:
        fault = "nobody routes to a stack of one machine by its region; leave it out"
        yield ProjectFault(DEPLOYMENT, "fleet.region", fault)
    if deployment.transport.endpoints:
        fault = "workers of a stack announce their own; leave them out"
        yield ProjectFault(DEPLOYMENT, "transport.endpoints", fault)


def _weights(
    models: Sequence[str], checkpoints: Path | None, packages: Sequence[str]
) -> Iterator[ProjectFault]:
    catalog = Catalog.load(models, checkpoints, packages=packages)
    for index, model_id in enumerate(models):
        reason = catalog.get(model_id).unavailable_reason
        if reason:
            yield ProjectFault(DEPLOYMENT, f"models.{index}", reason)
