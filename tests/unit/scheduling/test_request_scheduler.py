"""RequestScheduler alone: the choice of a program and the walk through it."""

import pytest

from fastvideo.errors import FailedPrecondition, NotFound
from fastvideo.program.specs import NodeKind
from fastvideo.scheduling.request_scheduler import RequestScheduler, program_graph
from tests.unit.scheduling.world import MODEL, TEXT_TO_VIDEO, Catalog, edge, node, program, request

pytestmark = pytest.mark.row("SCH-15")

DIAMOND = program(
    node("a"),
    node("b", weight=2),
    node("c", weight=1),
    node("d", weight=0),
    edges=(edge("a", "b"), edge("a", "c"), edge("b", "d", "left"), edge("c", "d", "right")),
)


def check_walk(graph, *rounds):
    """Each round names the nodes that can begin once all earlier ones have ended."""
    ended: set[str] = set()
    for expected in rounds:
        assert graph.startable(begun=ended, ended=ended) == expected
        ended.update(expected)
    assert ended == set(graph.nodes)


def test_it_selects_the_program_that_the_request_names():
    graph = RequestScheduler(Catalog()).select(request("r1"))
    assert tuple(graph.nodes) == ("encode", "denoise", "decode", "write")


def test_an_unknown_model_is_refused():
    with pytest.raises(NotFound):
        RequestScheduler(Catalog()).select(request("r1", model="other"))


def test_a_changed_program_is_prepared_again():
    catalog = Catalog(programs={MODEL: TEXT_TO_VIDEO})
    scheduler = RequestScheduler(catalog)
    assert scheduler.select(request("r1")) is scheduler.select(request("r2"))
    catalog.programs = {MODEL: DIAMOND}
    assert tuple(scheduler.select(request("r3")).nodes) == ("a", "b", "c", "d")


def test_a_chain_is_walked_in_order():
    graph = program_graph(TEXT_TO_VIDEO)
    check_walk(graph, ("encode",), ("denoise",), ("decode",), ("write",))


def test_branches_begin_together_and_join():
    check_walk(program_graph(DIAMOND), ("a",), ("b", "c"), ("d",))


def test_a_node_that_has_begun_does_not_begin_again():
    graph = program_graph(DIAMOND)
    assert graph.startable(begun={"a", "b"}, ended={"a"}) == ("c",)


def test_inputs_name_where_a_value_is():
    assert program_graph(DIAMOND).inputs["d"] == {"left": "b.left", "right": "c.right"}


def test_weights_are_shares():
    assert program_graph(DIAMOND).weights == {"a": 0.25, "b": 0.5, "c": 0.25, "d": 0.0}
    equal = program_graph(program(node("a", weight=0), node("b", weight=0)))
    assert equal.weights == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (program(), "no node"),
        (program(node("a", NodeKind.EXTERNAL)), "node a is external"),
        (program(node("a"), edges=(edge("a", "z"),)), "leaves the program"),
        (program(node("a"), node("b"), edges=(edge("a", "b"), edge("b", "a"))), "wait for"),
    ],
)
def test_a_program_that_cannot_be_walked_is_refused(broken, says):
    with pytest.raises(FailedPrecondition, match=says) as refused:
        program_graph(broken)
    assert refused.value.reason == "PROGRAM_UNSUPPORTED"
