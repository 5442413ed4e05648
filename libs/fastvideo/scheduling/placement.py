"""PlacementScheduler: on which worker and model instance a request runs.

A request stays where it was placed. A new one goes to the worker with the least predicted
device-seconds among those that have its model and a place free.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import ClassVar

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import ModelState


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request's loops go."""

    worker_id: str
    model_instance_id: str


@dataclass(slots=True)
class _Host:
    """What placement knows of one worker."""

    instances: Sequence[ModelState]
    places: int
    residents: int = 0
    load_seconds: float = 0.0
    draining: bool = False
    # Its stream is broken: it may come back.
    held: bool = False
    # New at each change, so that older entries of the heaps are known as such.
    version: int = 0

    @property
    def is_open(self) -> bool:
        return not self.draining and not self.held and self.residents < self.places


class PlacementScheduler:
    """The workers by model and load; costs O(log workers) a placement."""

    # Not in a snapshot (`snapshot`): follows from the hosts.
    DERIVED: ClassVar = frozenset({"_open"})

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self._versions = 0
        # Model to (load, residents, worker, version); entries of older versions are skipped.
        self._open: dict[str, list[tuple[float, int, str, int]]] = {}

    def add(self, worker_id: str, instances: Sequence[ModelState], places: int) -> None:
        """A worker came."""
        self._hosts[worker_id] = _Host(instances, places)
        self._push(worker_id)

    def remove(self, worker_id: str) -> None:
        """A worker went; its entries die with it."""
        self._hosts.pop(worker_id, None)

    def drain(self, worker_id: str) -> None:
        """A worker takes no new request."""
        if worker_id in self._hosts:
            self._hosts[worker_id].draining = True

    def hold(self, worker_id: str, *, held: bool) -> None:
        """A worker takes no request for a while, or takes them again."""
        host = self._hosts.get(worker_id)
        if host is not None and host.held != held:
            host.held = held
            self._push(worker_id)

    def occupy(self, worker_id: str, seconds: float) -> None:
        """A request of that predicted cost was placed there."""
        host = self._hosts[worker_id]
        host.residents += 1
        host.load_seconds += seconds
        self._push(worker_id)

    def vacate(self, worker_id: str, seconds: float) -> None:
        """A request left."""
        host = self._hosts.get(worker_id)
        if host is not None:
            host.residents -= 1
            # No sum of floats comes back to zero by itself.
            host.load_seconds = host.load_seconds - seconds if host.residents else 0.0
            self._push(worker_id)

    def place(self, spec: RequestSpec) -> Placement | str:
        """Where the request goes now, or why it must wait."""
        heap = self._open.get(spec.model_id, [])
        passed: list[tuple[float, int, str, int]] = []
        found: Placement | None = None
        while heap and found is None:
            entry = heap[0]
            host = self._hosts.get(entry[2])
            if host is None or entry[3] != host.version or not host.is_open:
                heappop(heap)
                continue
            instance = _instance(host.instances, spec)
            if instance is not None:
                found = Placement(entry[2], instance.model_instance_id)
            else:
                passed.append(heappop(heap))
        for entry in passed:
            heappush(heap, entry)
        return found if found is not None else self._why_not(spec)

    def models(self, worker_id: str) -> tuple[str, ...]:
        """The models that a worker has and takes requests for; none when it is full."""
        host = self._hosts.get(worker_id)
        if host is None or not host.is_open:
            return ()
        return tuple(dict.fromkeys(instance.model_id for instance in host.instances))

    def rebuild(self) -> None:
        """Make the heaps anew from the hosts, after a snapshot was put back."""
        self._open = {}
        for worker_id, host in self._hosts.items():
            for model_id in self.models(worker_id):
                entry = (host.load_seconds, host.residents, worker_id, host.version)
                self._open.setdefault(model_id, []).append(entry)
        for heap in self._open.values():
            heapify(heap)

    def _push(self, worker_id: str) -> None:
        host = self._hosts[worker_id]
        self._versions += 1
        host.version = self._versions
        for model_id in self.models(worker_id):
            heap = self._open.setdefault(model_id, [])
            heappush(heap, (host.load_seconds, host.residents, worker_id, host.version))
            self._compact(model_id)

    def _compact(self, model_id: str) -> None:
        """Drop dead entries when they outnumber the living, so that the heap stays bounded."""
        heap = self._open[model_id]
        if len(heap) > 2 * len(self._hosts) + 64:
            living = [
                entry
                for entry in heap
                if (host := self._hosts.get(entry[2])) is not None and host.version == entry[3]
            ]
            # A sorted list is a heap.
            self._open[model_id] = sorted(living)

    def _why_not(self, spec: RequestSpec) -> str:
        having = [
            host for host in self._hosts.values() if _instance(host.instances, spec) is not None
        ]
        if not having:
            if any(i.model_id == spec.model_id for h in self._hosts.values() for i in h.instances):
                return f"no attached worker has model {spec.model_id} with the request's card"
            return f"no attached worker has model {spec.model_id}"
        if all(host.draining for host in having):
            return f"all workers with model {spec.model_id} are draining"
        if all(host.draining or host.held for host in having):
            return f"the workers with model {spec.model_id} are being reached again"
        places = sum(host.places for host in having if not host.draining)
        return f"all {places} places on workers with model {spec.model_id} are taken"


def _instance(instances: Sequence[ModelState], spec: RequestSpec) -> ModelState | None:
    for instance in instances:
        if instance.model_id == spec.model_id and (
            not spec.card_digest
            or not instance.card_digest
            or spec.card_digest == instance.card_digest
        ):
            return instance
    return None
