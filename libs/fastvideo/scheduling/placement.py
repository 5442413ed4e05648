"""PlacementScheduler: on which worker and model instance a request runs.

A request stays where it was placed. A new one goes to the worker with the least predicted
device-seconds for its compute slots, among those that

- have its model with its card, with the weights that it must run on, on the mesh that its class
  of service asks for;
- play the roles of its program's nodes, and belong to the pool of its class of service;
- have a place free, those left out that are kept for higher classes;
- have a budget that can hold what such requests are known to need.

A worker that has cached what the request needs is taken in place of that one when its work is
more by fewer seconds than the policy gives for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import ClassVar

from fastvideo.errors import ResourceExhausted, StaleWeights
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.hosts import (
    ANYWHERE,
    Host,
    Placement,
    Wish,
    count_down,
    instance_for,
    lack_of,
    place_on,
    suits,
)
from fastvideo.scheduling.work import ModelState


class PlacementScheduler:
    """The workers by model and load; costs O(log workers) a placement."""

    # Not in a snapshot (`snapshot`): follows from the hosts.
    DERIVED: ClassVar = frozenset({"_open"})

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}
        self._versions = 0
        # Model to (load, residents, worker, version); entries of older versions are skipped.
        self._open: dict[str, list[tuple[float, int, str, int]]] = {}

    def add(
        self,
        worker_id: str,
        instances: Sequence[ModelState],
        places: int,
        *,
        role: str = "",
        slots: int = 1,
        budget: Mapping[str, float] | None = None,
    ) -> None:
        """A worker came, with its role, its compute slots and its budget by resource."""
        self._hosts[worker_id] = Host(
            instances, places, role=role, slots=max(1, slots), budget=budget or {}
        )
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

    def occupy(
        self,
        worker_id: str,
        seconds: float,
        model_instance_id: str = "",
        level: int | None = None,
    ) -> None:
        """A request of that predicted cost, and of that level among classes, was placed there."""
        host = self._hosts[worker_id]
        host.residents += 1
        host.load_seconds += seconds
        host.by_instance[model_instance_id] = host.by_instance.get(model_instance_id, 0) + 1
        if level is not None:
            host.by_level[level] = host.by_level.get(level, 0) + 1
        self._push(worker_id)

    def vacate(
        self,
        worker_id: str,
        seconds: float,
        model_instance_id: str = "",
        level: int | None = None,
    ) -> None:
        """A request left."""
        host = self._hosts.get(worker_id)
        if host is not None:
            host.residents -= 1
            # No sum of floats comes back to zero by itself.
            host.load_seconds = host.load_seconds - seconds if host.residents else 0.0
            count_down(host.by_instance, model_instance_id)
            if level is not None:
                count_down(host.by_level, level)
            self._push(worker_id)

    def place(self, spec: RequestSpec, wish: Wish = ANYWHERE) -> Placement | None:
        """Where the request goes now; None when it must wait."""
        found = self._least(spec, wish)
        return None if found is None else self._warmer(spec, wish, found) or found

    def why_not(self, spec: RequestSpec, wish: Wish = ANYWHERE) -> str:
        """Why the request must wait; empty when it need not."""
        return "" if self._least(spec, wish) is not None else self._why_not(spec, wish)

    def check_possible(self, spec: RequestSpec, wish: Wish) -> None:
        """Raise as `check_weights` and `check_size` do."""
        self.check_weights(spec, wish)
        self.check_size(spec, wish)

    def check_size(self, spec: RequestSpec, wish: Wish) -> None:
        """Raise ResourceExhausted, naming the resource, when no worker there can ever hold it.

        Workers that drain do not count, and nothing is said while none has the model.
        """
        lacks = []
        for host in self._hosts.values():
            if not host.draining and suits(host, wish) and instance_for(host, spec, wish):
                lack = lack_of(host, wish)
                if lack is None:
                    # The others need not be asked, of whom there may be a thousand.
                    return
                lacks.append(lack)
        if lacks:
            resource, needed, limit = max(lacks, key=lambda lack: lack[2])
            raise ResourceExhausted(
                f"the request needs {needed:g} {resource}; no worker has more than {limit:g}",
                subject=resource,
                attributes={"needed": f"{needed:g}", "limit": f"{limit:g}"},
            )

    def check_weights(self, spec: RequestSpec, wish: Wish) -> None:
        """Raise StaleWeights when the model is there, but only with other weights."""
        if not spec.required_weights_version:
            return
        anyone = replace(spec, required_weights_version="")
        present = {
            instance.weights_version
            for host in self._hosts.values()
            if not host.draining and instance_for(host, anyone, wish) is not None
            for instance in host.instances
            if instance.model_id == spec.model_id
        }
        if present and spec.required_weights_version not in present:
            raise StaleWeights(
                f"{spec.model_id} must run on weights {spec.required_weights_version}; attached "
                f"workers have {', '.join(sorted(present))}",
                subject="required_weights_version",
                attributes={
                    "required": spec.required_weights_version,
                    "found": ", ".join(sorted(present)),
                },
            )

    def could_fit(self, spec: RequestSpec, wish: Wish, *, but: str) -> bool:
        """Whether a worker other than `but` could hold it, were it free."""
        return any(
            worker_id != but
            and not host.draining
            and suits(host, wish)
            and instance_for(host, spec, wish) is not None
            and lack_of(host, wish) is None
            for worker_id, host in self._hosts.items()
        )

    def could_host(self, worker_id: str, spec: RequestSpec, wish: Wish) -> bool:
        """Whether that worker could take it, were a place there free."""
        host = self._hosts.get(worker_id)
        return (
            host is not None
            and not host.draining
            and not host.held
            and suits(host, wish)
            and instance_for(host, spec, wish) is not None
            and lack_of(host, wish) is None
        )

    def _least(self, spec: RequestSpec, wish: Wish) -> Placement | None:
        """The place with the least work."""
        heap = self._open.get(spec.model_id, [])
        passed: list[tuple[float, int, str, int]] = []
        found: Placement | None = None
        while heap and found is None:
            entry = heap[0]
            host = self._hosts.get(entry[2])
            if host is None or entry[3] != host.version or not host.is_open:
                heappop(heap)
                continue
            found = place_on(entry[2], host, spec, wish)
            if found is None:
                passed.append(heappop(heap))
        for entry in passed:
            heappush(heap, entry)
        return found

    def _warmer(self, spec: RequestSpec, wish: Wish, least: Placement) -> Placement | None:
        """A place that is worth more than the one with the least work, if there is one."""
        found, gained = None, 0.0
        start = self._hosts[least.worker_id].waits_seconds
        own = wish.warm.get(least.worker_id, 0.0)
        for worker_id, share in sorted(wish.warm.items()):
            host = self._hosts.get(worker_id)
            if host is None or not host.is_open:
                continue
            gain = (share - own) * wish.warm_seconds - (host.waits_seconds - start)
            if gain > gained:
                placement = place_on(worker_id, host, spec, wish)
                if placement is not None:
                    found, gained = placement, gain
        return found

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
                entry = (host.waits_seconds, host.residents, worker_id, host.version)
                self._open.setdefault(model_id, []).append(entry)
        for heap in self._open.values():
            heapify(heap)

    def _push(self, worker_id: str) -> None:
        host = self._hosts[worker_id]
        self._versions += 1
        host.version = self._versions
        for model_id in self.models(worker_id):
            heap = self._open.setdefault(model_id, [])
            heappush(heap, (host.waits_seconds, host.residents, worker_id, host.version))
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

    def _why_not(self, spec: RequestSpec, wish: Wish) -> str:
        model = f"model {spec.model_id}"
        if not any(
            i.model_id == spec.model_id for host in self._hosts.values() for i in host.instances
        ):
            return f"no attached worker has {model}"
        having = [
            host for host in self._hosts.values() if instance_for(host, spec, wish) is not None
        ]
        if not having:
            if wish.mesh:
                return f"no attached worker has {model} on mesh {wish.mesh}"
            if spec.required_weights_version:
                return f"no attached worker has {model} with the weights that it must run on"
            return f"no attached worker has {model} with the request's card"
        having = [host for host in having if suits(host, wish)]
        if not having:
            wanted = ", ".join(sorted({*wish.roles, wish.pool} - {""}))
            return f"no attached worker with {model} plays {wanted}"
        having = [host for host in having if lack_of(host, wish) is None]
        if not having:
            return f"no attached worker with {model} is large enough"
        if all(host.draining for host in having):
            return f"all workers with {model} are draining"
        if all(host.draining or host.held for host in having):
            return f"the workers with {model} are being reached again"
        places = sum(max(0, h.places - h.kept_from(wish)) for h in having if not h.draining)
        return f"all {places} places on workers with {model} are taken"
