"""Static validation of programs: every value has a producer, nothing runs in a circle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastvideo.model.specs import ModelSpec
from fastvideo.program.specs import EdgeKind, NodeKind, ProgramEdge, ProgramNode, ProgramSpec

_LOOP_NODES = frozenset({NodeKind.MODEL_LOOP, NodeKind.COMPONENT, NodeKind.ARTIFACT})


def program_problems(program: ProgramSpec) -> dict[str, str]:
    """What is wrong with a program by itself, by key; empty when it is sound."""
    problems = dict(_nodes(program))
    problems.update(_edges(program))
    problems.update(_values(program))
    cycle = _cycle(program)
    if cycle:
        problems["edges"] = f"nodes run in a circle: {' -> '.join(cycle)}"
    return problems


def card_program_problems(program: ProgramSpec, card: ModelSpec) -> dict[str, str]:
    """What keeps a program from running on a card's model, by key."""
    problems: dict[str, str] = {}
    if program.capability not in card.capabilities.capabilities:
        problems["capability"] = f"{program.capability!r} is no capability of {card.model_id}"
    for node in program.nodes:
        key = f"nodes.{node.node_id}"
        if node.loop_id and node.loop_id not in card.loops:
            problems[f"{key}.loop_id"] = f"{node.loop_id!r} is no loop of {card.model_id}"
        if node.component_id and node.component_id not in card.components:
            problems[f"{key}.component_id"] = (
                f"{node.component_id!r} is no component of {card.model_id}"
            )
        elif node.kind is NodeKind.COMPONENT and node.loop_id in card.loops:
            called = card.loops[node.loop_id].components
            if called != (node.component_id,):
                problems[f"{key}.loop_id"] = (
                    f"{node.loop_id!r} runs {', '.join(called)}, not {node.component_id!r} alone"
                )
    return problems


def node_order(program: ProgramSpec) -> tuple[ProgramNode, ...]:
    """The nodes, each after those that it waits for; ties keep the program's own order."""
    return tuple(_sort(program).ordered)


def _nodes(program: ProgramSpec) -> Iterator[tuple[str, str]]:
    if not program.program_id:
        yield "program_id", "is empty"
    if not program.nodes:
        yield "nodes", "is empty"
    seen: set[str] = set()
    for node in program.nodes:
        key = f"nodes.{node.node_id}"
        if not node.node_id or "." in node.node_id:
            yield key, "a node id is not empty and holds no dot"
        if node.node_id in seen:
            yield key, "is there twice"
        seen.add(node.node_id)
        if node.kind in _LOOP_NODES and not node.loop_id:
            yield f"{key}.loop_id", f"is empty on a {node.kind.value} node"
        if node.kind is NodeKind.COMPONENT and not node.component_id:
            yield f"{key}.component_id", "is empty on a component node"
        if node.progress_weight < 0:
            yield f"{key}.progress_weight", "is negative"
        if len(set(node.outputs)) != len(node.outputs):
            yield f"{key}.outputs", "names an output twice"


def _edges(program: ProgramSpec) -> Iterator[tuple[str, str]]:
    nodes = {node.node_id: node for node in program.nodes}
    for index, edge in enumerate(program.edges):
        key = f"edges.{index}"
        source, target = nodes.get(edge.source_node), nodes.get(edge.target_node)
        if source is None:
            yield f"{key}.source_node", f"there is no node {edge.source_node!r}"
        if target is None:
            yield f"{key}.target_node", f"there is no node {edge.target_node!r}"
        if edge.kind is EdgeKind.CONTROL:
            if edge.value:
                yield f"{key}.value", "a control edge carries nothing"
            continue
        if source is not None and edge.value not in source.outputs:
            yield f"{key}.value", f"{edge.value!r} is no output of {source.node_id}"
        if target is not None and edge.value not in target.inputs:
            yield f"{key}.value", f"{edge.value!r} is no input of {target.node_id}"


def _values(program: ProgramSpec) -> Iterator[tuple[str, str]]:
    for node in program.nodes:
        key = f"nodes.{node.node_id}.inputs"
        for name in node.inputs:
            sources = _producers(program.edges, node.node_id, name)
            if len(sources) > 1:
                yield key, f"{name!r} comes from several nodes: {', '.join(sources)}"
            if not sources and name not in program.request_inputs:
                yield key, f"{name!r} is produced by no node and supplied by no request"


def _producers(edges: Sequence[ProgramEdge], node_id: str, name: str) -> list[str]:
    return [
        edge.source_node
        for edge in edges
        if edge.target_node == node_id and edge.value == name and edge.kind is not EdgeKind.CONTROL
    ]


def _cycle(program: ProgramSpec) -> tuple[str, ...]:
    return tuple(node.node_id for node in _sort(program).left)


@dataclass(frozen=True, slots=True)
class _Sorted:
    ordered: list[ProgramNode]
    # Nodes on or behind a circle.
    left: list[ProgramNode]


def _sort(program: ProgramSpec) -> _Sorted:
    left = list(program.nodes)
    ordered: list[ProgramNode] = []
    while left:
        waiting = {node.node_id for node in left}
        blocked = {edge.target_node for edge in program.edges if edge.source_node in waiting}
        ready = [node for node in left if node.node_id not in blocked]
        if not ready:
            break
        ordered.extend(ready)
        left = [node for node in left if node.node_id in blocked]
    return _Sorted(ordered, left)
