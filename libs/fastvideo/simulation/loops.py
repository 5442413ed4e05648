"""Loops on a simulated worker: a position and a digest that only the right steps give."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef, LoopResult, WorkPlan
from fastvideo.simulation.models import Run, SimulatedModels, plan


@dataclass(slots=True)
class SimulatedLoop:
    """One loop's state. `done` has the indexes of the units that have run."""

    spec: RequestSpec
    ref: LoopRef
    run: Run
    instance: str
    digest: int
    done: set[int] = field(default_factory=set)
    # Of a loop that offers all units at once: how many it has offered.
    offered: int = 0
    # The batch that it is in, if any.
    batch_id: str = ""
    # It is not kept any more; a unit of it that runs gives nothing.
    released: bool = False
    result: LoopResult | None = None

    @property
    def position(self) -> int:
        """How many of its units have run."""
        return len(self.done)

    def next_plan(self) -> WorkPlan:
        """What it wants to run next."""
        made = plan(self.spec, self.run, self.ref, self.instance, self.position, known=self.offered)
        if self.run.at_once:
            self.offered = self.run.units
        return made

    def advance(self, index: int) -> None:
        """Run one unit."""
        self.done.add(index)
        self.digest = step_digest(self.digest, index, in_order=not self.run.at_once)
        if len(self.done) == self.run.units:
            self.end()

    def end(self) -> None:
        """It has nothing left to run."""
        self.result = LoopResult(
            loop=self.ref,
            value_names=("out",) if self.run.kind != "artifact_write" else (),
            artifact_ids=artifact_ids(self.spec, self.ref.node_id, self.run),
            digests={"latents": f"{self.digest:08x}"},
        )


def step_digest(digest: int, index: int, *, in_order: bool) -> int:
    """The digest after a unit; units that come in any order are summed, others are chained."""
    if in_order:
        return crc32(index.to_bytes(4, "big"), digest)
    return (digest + crc32(index.to_bytes(4, "big"))) & 0xFFFFFFFF


def first_digest(spec: RequestSpec, node_id: str, sources: Iterable[int]) -> int:
    """The digest of a loop that has not run, by what it was given."""
    digest = crc32(f"{spec.request_id}/{node_id}".encode())
    for source in sources:
        digest = crc32(source.to_bytes(4, "big"), digest)
    return digest


def artifact_ids(spec: RequestSpec, node_id: str, run: Run) -> tuple[str, ...]:
    """The artifacts that a node stores: one a unit of those that write."""
    if run.kind != "artifact_write":
        return ()
    return tuple(f"art_{spec.request_id}_{node_id}_{index}" for index in range(run.units))


def expected_digest(models: SimulatedModels, spec: RequestSpec) -> str:
    """The digest that a request ends with, had it run alone and undisturbed."""
    digests: dict[str, int] = {}
    last = ""
    for node_id in _in_order(models, spec):
        run = models.run(spec, node_id)
        digest = first_digest(spec, node_id, (digests[source] for source in run.sources))
        for index in range(run.units):
            digest = step_digest(digest, index, in_order=not run.at_once)
        digests[node_id] = digest
        last = node_id
    return f"{digests[last]:08x}"


def expected_artifacts(models: SimulatedModels, spec: RequestSpec) -> frozenset[str]:
    """The artifacts that a completed request has."""
    return frozenset(
        artifact
        for node in models.nodes(spec)
        for artifact in artifact_ids(spec, node.node_id, models.run(spec, node.node_id))
    )


def batch_seconds(loops: Sequence[SimulatedLoop]) -> float:
    """What one forward over these loops' units costs a worker of speed 1."""
    return loops[0].run.base_s + sum(loop.run.unit_s for loop in loops)


def source_digests(run: Run, loops: Mapping[str, SimulatedLoop]) -> tuple[int, ...]:
    """The digests of the outputs that a loop begins with. KeyError when one is not there."""
    return tuple(loops[source].digest for source in run.sources)


def _in_order(models: SimulatedModels, spec: RequestSpec) -> tuple[str, ...]:
    """The nodes, each after those that it needs; the one on which nothing stands comes last."""
    waiting = {
        node.node_id: set(models.run(spec, node.node_id).sources) for node in models.nodes(spec)
    }
    order: list[str] = []
    while waiting:
        ready = [node_id for node_id, needs in waiting.items() if needs.issubset(order)]
        order.extend(ready)
        for node_id in ready:
            del waiting[node_id]
    return tuple(order)
