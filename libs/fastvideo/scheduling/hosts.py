"""What placement knows of one worker, what a request asks of its place, and whether they suit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import ModelState

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request's loops go."""

    worker_id: str
    model_instance_id: str
    # The pool and the mesh that they are in, by role and by hash of the parallel plan.
    role: str = ""
    mesh: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a request asks of its place beside its model."""

    # Roles that its program's nodes name; a worker with a role plays only that.
    roles: frozenset[str] = frozenset()
    # The pool, by role, and the mesh that its class is bound to; empty is any.
    pool: str = ""
    mesh: str = ""
    # What it leaves to those of higher classes: the level of each, and the places that are kept
    # for it and those above it on every worker.
    kept: tuple[tuple[int, int], ...] = ()
    # Resource name to the most that one of its units is known to need.
    needs: Mapping[str, float] = field(default_factory=dict)
    # Worker to the share, up to 1, of what it needs cached there; and the seconds that all is
    # worth.
    warm: Mapping[str, float] = field(default_factory=dict)
    warm_seconds: float = 0.0


ANYWHERE: Final = Wish()


@dataclass(slots=True)
class Host:
    """What placement knows of one worker."""

    instances: Sequence[ModelState]
    places: int
    role: str = ""
    slots: int = 1
    # What it has of each limited resource.
    budget: Mapping[str, float] = field(default_factory=dict)
    residents: int = 0
    load_seconds: float = 0.0
    # Requests of each instance, and of each level where there are classes of service.
    by_instance: dict[str, int] = field(default_factory=dict)
    by_level: dict[int, int] = field(default_factory=dict)
    draining: bool = False
    # Its stream is broken: it may come back.
    held: bool = False
    # New at each change, so that older entries of the heaps are known as such.
    version: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it takes requests and has a place."""
        return not self.draining and not self.held and self.residents < self.places

    @property
    def waits_seconds(self) -> float:
        """Predicted seconds until all that it has is done."""
        return self.load_seconds / self.slots

    def kept_from(self, wish: Wish) -> int:
        """Places that must stay free for those of higher classes, beside those that they have.

        The last place is anybody's: where there are few, a class would else wait for ever.
        """
        if not wish.kept:
            return 0
        return min(self.places - 1, max(0, *(self._unused(*kept) for kept in wish.kept)))

    def _unused(self, level: int, places: int) -> int:
        held = sum(count for other, count in self.by_level.items() if other >= level)
        return places - held


def place_on(worker_id: str, host: Host, spec: RequestSpec, wish: Wish) -> Placement | None:
    """The place on an open host, if the request may have it."""
    if host.residents >= host.places - host.kept_from(wish) or not suits(host, wish):
        return None
    if wish.needs and lack_of(host, wish) is not None:
        return None
    instance = instance_for(host, spec, wish)
    if instance is None:
        return None
    return Placement(worker_id, instance.model_instance_id, host.role, instance.parallel_plan_hash)


def suits(host: Host, wish: Wish) -> bool:
    """Whether the host plays what is asked for."""
    if wish.pool and host.role != wish.pool:
        return False
    return not host.role or all(role in ("", host.role) for role in wish.roles)


def lack_of(host: Host, wish: Wish) -> tuple[str, float, float] | None:
    """The first resource of which the host has too little for ever: its name, needed, limit."""
    for resource, needed in wish.needs.items():
        limit = host.budget.get(resource)
        if limit is not None and needed > limit:
            return resource, needed, limit
    return None


def instance_for(host: Host, spec: RequestSpec, wish: Wish) -> ModelState | None:
    """The host's instance for the request with the fewest requests on it."""
    found: ModelState | None = None
    for instance in host.instances:
        if instance.model_id != spec.model_id or wish.mesh not in ("", instance.parallel_plan_hash):
            continue
        if spec.card_digest and instance.card_digest not in ("", spec.card_digest):
            continue
        if spec.required_weights_version not in ("", instance.weights_version):
            continue
        if found is None or _residents(host, instance) < _residents(host, found):
            found = instance
    return found


def count_down(counts: dict[K, int], key: K) -> None:
    """One less of a key, which is forgotten when none is left."""
    left = counts.get(key, 0) - 1
    if left > 0:
        counts[key] = left
    else:
        counts.pop(key, None)


def _residents(host: Host, instance: ModelState) -> int:
    return host.by_instance.get(instance.model_instance_id, 0)
