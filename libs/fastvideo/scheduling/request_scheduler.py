"""RequestScheduler: which program a request runs, and how far along it is.

A program is a graph of nodes; a node may begin when everything that flows into it is there.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from fastvideo.errors import FailedPrecondition
from fastvideo.model.specs import CostPrior
from fastvideo.program.specs import EdgeKind, NodeKind, ProgramNode, ProgramSpec
from fastvideo.requests.types import RequestSpec

DRIVEN: Final = frozenset(
    {NodeKind.MODEL_LOOP, NodeKind.COMPONENT, NodeKind.ARTIFACT, NodeKind.TRANSFER}
)
"""Kinds of nodes that run as loops on a worker."""


class ModelCatalog(Protocol):
    """What the scheduler needs to know of models."""

    def program(self, model_id: str, program_id: str) -> ProgramSpec:
        """A model's program. NotFound when there is none of that name."""
        ...

    def cost_prior(self, model_id: str, phase: str) -> CostPrior | None:
        """The card's first guess at a phase's cost."""
        ...


@dataclass(frozen=True, slots=True)
class ProgramGraph:
    """A program, prepared for walking."""

    nodes: Mapping[str, ProgramNode]
    # Node to the nodes that must have ended before it begins.
    upstream: Mapping[str, tuple[str, ...]]
    # Node to its inputs: value name to "node.output".
    inputs: Mapping[str, Mapping[str, str]]
    # The same of what a node is given only of requests that capture.
    captured: Mapping[str, Mapping[str, str]]
    # Node to its share of the progress; the shares sum to 1.
    weights: Mapping[str, float]
    # The roles that its nodes name.
    roles: frozenset[str] = frozenset()

    def inputs_of(self, node_id: str, spec: RequestSpec) -> Mapping[str, str]:
        """The inputs of a node for a request: value name to "node.output"."""
        if spec.outputs.capture is None:
            return self.inputs[node_id]
        return {**self.inputs[node_id], **self.captured[node_id]}

    def startable(self, begun: Collection[str], ended: Collection[str]) -> tuple[str, ...]:
        """The nodes, in the program's order, that have not begun and wait for nothing."""
        return tuple(
            node_id
            for node_id, needs in self.upstream.items()
            if node_id not in begun and all(need in ended for need in needs)
        )


class RequestScheduler:
    """Selects programs; remembers the graph of each, of which a catalog has few."""

    def __init__(self, catalog: ModelCatalog) -> None:
        self._catalog = catalog
        self._graphs: dict[tuple[str, str], tuple[ProgramSpec, ProgramGraph]] = {}

    def select(self, spec: RequestSpec) -> ProgramGraph:
        """The graph of the request's program.

        Raises NotFound when the model has no such program and FailedPrecondition when the
        program has a part that no worker can drive.
        """
        program = self._catalog.program(spec.model_id, spec.program_id)
        key = (spec.model_id, spec.program_id)
        known = self._graphs.get(key)
        if known is None or known[0] is not program:
            known = (program, program_graph(program))
            self._graphs[key] = known
        return known[1]


def program_graph(program: ProgramSpec) -> ProgramGraph:
    """Prepare a program; FailedPrecondition when it cannot be walked to its end."""
    nodes = {node.node_id: node for node in program.nodes}
    for node in program.nodes:
        if node.kind not in DRIVEN or not node.loop_id:
            raise _unsupported(program, node.node_id, f"node {node.node_id} is {node.kind}")
    upstream: dict[str, dict[str, None]] = {node_id: {} for node_id in nodes}
    inputs: dict[str, dict[str, str]] = {node_id: {} for node_id in nodes}
    captured: dict[str, dict[str, str]] = {node_id: {} for node_id in nodes}
    for edge in program.edges:
        if edge.source_node not in nodes or edge.target_node not in nodes:
            missing = f"an edge from {edge.source_node!r} to {edge.target_node!r}"
            raise _unsupported(program, edge.target_node, f"{missing} leaves the program")
        upstream[edge.target_node][edge.source_node] = None
        if edge.value:
            flows = captured if edge.kind is EdgeKind.BEHAVIOR else inputs
            flows[edge.target_node][edge.value] = f"{edge.source_node}.{edge.value}"
    _check_walkable(program, upstream)
    total = sum(node.progress_weight for node in program.nodes)
    weights = {
        node.node_id: node.progress_weight / total if total > 0 else 1.0 / len(nodes)
        for node in program.nodes
    }
    return ProgramGraph(
        nodes=nodes,
        upstream={node_id: tuple(needs) for node_id, needs in upstream.items()},
        inputs=inputs,
        captured=captured,
        weights=weights,
        roles=frozenset(node.role for node in program.nodes if node.role),
    )


def _check_walkable(program: ProgramSpec, upstream: Mapping[str, Collection[str]]) -> None:
    if not upstream:
        raise _unsupported(program, "", "it has no node")
    ended: set[str] = set()
    while len(ended) < len(upstream):
        ready = [node for node, needs in upstream.items() if ended.issuperset(needs)]
        if len(ready) == len(ended):
            stuck = ", ".join(sorted(upstream.keys() - ended))
            raise _unsupported(program, stuck, f"nodes {stuck} wait for one another")
        ended.update(ready)


def _unsupported(program: ProgramSpec, subject: str, why: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"program {program.program_id} cannot be scheduled: {why}",
        reason="PROGRAM_UNSUPPORTED",
        subject=subject or program.program_id,
    )
