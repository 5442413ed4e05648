from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fastvideo.deployment.catalog import FAMILIES, Catalog
from fastvideo.model.documents import InvalidDocument
from fastvideo.program.load import check_programs, check_served, load_programs, programs_for
from fastvideo.program.specs import (
    EdgeKind,
    NodeKind,
    ProgramEdge,
    ProgramKind,
    ProgramNode,
    ProgramSpec,
)
from fastvideo.program.validation import card_program_problems, node_order, program_problems
from fastvideo.requests.types import RequestKind

CARD = Catalog.load(["moving-digits"]).get("moving-digits").card


def node(node_id: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> ProgramNode:
    return ProgramNode(
        node_id=node_id, kind=NodeKind.MODEL_LOOP, loop_id=node_id, inputs=inputs, outputs=outputs
    )


def edge(source: str, target: str, value: str, kind: EdgeKind = EdgeKind.TENSOR) -> ProgramEdge:
    return ProgramEdge(kind=kind, source_node=source, target_node=target, value=value)


PROGRAM = ProgramSpec(
    program_id="p",
    kind=ProgramKind.INLINE,
    capability="text_to_video",
    request_kind=RequestKind.GENERATION,
    request_inputs=("prompt",),
    nodes=(
        node("encode", ("prompt",), ("features",)),
        node("denoise", ("features",), ("latents",)),
        node("decode", ("latents",), ("frames",)),
    ),
    edges=(edge("encode", "denoise", "features"), edge("denoise", "decode", "latents")),
)


def test_a_sound_program_has_no_problems() -> None:
    assert program_problems(PROGRAM) == {}
    assert card_program_problems(PROGRAM, CARD) == {}


@pytest.mark.row("PRG-19")
def test_a_value_that_no_node_produces_is_refused() -> None:
    broken = replace(PROGRAM, edges=PROGRAM.edges[:1])
    assert program_problems(broken) == {
        "nodes.decode.inputs": "'latents' is produced by no node and supplied by no request"
    }


@pytest.mark.row("PRG-19")
def test_a_cycle_is_refused() -> None:
    broken = replace(
        PROGRAM,
        edges=(*PROGRAM.edges, edge("decode", "encode", "", EdgeKind.CONTROL)),
    )
    assert program_problems(broken) == {
        "edges": "nodes run in a circle: encode -> denoise -> decode"
    }


@pytest.mark.row("PRG-19")
@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"program_id": ""}, "program_id"),
        ({"nodes": (), "edges": ()}, "nodes"),
        ({"nodes": (*PROGRAM.nodes, PROGRAM.nodes[0])}, "nodes.encode"),
        (
            {"nodes": (replace(PROGRAM.nodes[0], loop_id=""), *PROGRAM.nodes[1:])},
            "nodes.encode.loop_id",
        ),
        (
            {"nodes": (replace(PROGRAM.nodes[0], kind=NodeKind.COMPONENT), *PROGRAM.nodes[1:])},
            "nodes.encode.component_id",
        ),
        (
            {"nodes": (replace(PROGRAM.nodes[0], progress_weight=-1), *PROGRAM.nodes[1:])},
            "nodes.encode.progress_weight",
        ),
        ({"edges": (*PROGRAM.edges, edge("who", "decode", "x"))}, "edges.2.source_node"),
        ({"edges": (*PROGRAM.edges, edge("encode", "who", "features"))}, "edges.2.target_node"),
        ({"edges": (*PROGRAM.edges, edge("encode", "decode", "sound"))}, "edges.2.value"),
        ({"edges": (*PROGRAM.edges, edge("encode", "decode", "features"))}, "edges.2.value"),
        (
            {"edges": (*PROGRAM.edges, edge("encode", "decode", "x", EdgeKind.CONTROL))},
            "edges.2.value",
        ),
        (
            {
                "nodes": (
                    *PROGRAM.nodes,
                    node("again", ("features",), ("latents",)),
                ),
                "edges": (
                    *PROGRAM.edges,
                    edge("encode", "again", "features"),
                    edge("again", "decode", "latents"),
                ),
            },
            "nodes.decode.inputs",
        ),
    ],
)
def test_a_broken_reference_is_named(changes: dict[str, Any], key: str) -> None:
    assert key in program_problems(replace(PROGRAM, **changes))


@pytest.mark.row("PRG-19")
def test_what_the_card_does_not_have_is_refused() -> None:
    nodes = (
        replace(PROGRAM.nodes[0], loop_id="listen"),
        replace(PROGRAM.nodes[1], component_id="ear"),
        replace(PROGRAM.nodes[2], kind=NodeKind.COMPONENT, component_id="transformer"),
    )
    broken = replace(PROGRAM, capability="video_to_audio", nodes=nodes)
    assert card_program_problems(broken, CARD) == {
        "capability": "'video_to_audio' is no capability of moving-digits",
        "nodes.encode.loop_id": "'listen' is no loop of moving-digits",
        "nodes.denoise.component_id": "'ear' is no component of moving-digits",
        "nodes.decode.loop_id": "'decode' runs vae, not 'transformer' alone",
    }
    with pytest.raises(InvalidDocument, match=r"programs\.p\.nodes\.encode\.loop_id"):
        check_programs({"p": broken}, CARD, "programs.yaml")


def test_nodes_are_ordered_after_what_they_wait_for() -> None:
    shuffled = replace(PROGRAM, nodes=tuple(reversed(PROGRAM.nodes)))
    assert [n.node_id for n in node_order(shuffled)] == ["encode", "denoise", "decode"]


def test_the_shipped_programs_pass_on_every_card() -> None:
    programs = load_programs(FAMILIES / "wan" / "programs.yaml")
    assert set(programs) == {
        "text_to_video",
        "image_to_video",
        "text_to_latents",
        "encode_text",
        "decode_latents",
        "score_latents",
    }
    assert {program.request_kind for program in programs.values()} == set(RequestKind)
    assert {name for name, program in programs.items() if not program.is_default} == {
        "image_to_video"
    }
    cards = {entry.card.model_id: entry.card for entry in Catalog.load().entries}
    check_served(programs, cards.values(), "programs.yaml")
    for card in cards.values():
        check_programs(programs_for(programs, card), card, "programs.yaml")
    assert set(programs_for(programs, cards["moving-digits"])) == set(programs)
    left_out = set(programs) - set(programs_for(programs, cards["wan2.1-t2v-1.3b"]))
    assert left_out == {"image_to_video"}


def test_a_program_that_no_card_of_the_family_can_run_is_named() -> None:
    nobody = replace(PROGRAM, program_id="p", capability="video_to_audio")
    with pytest.raises(InvalidDocument, match=r"programs\.p\.capability.*no capability of any"):
        check_served({"p": nobody}, [CARD], "programs.yaml")


def write(tmp_path: Path, change: Any) -> Path:
    data = yaml.safe_load((FAMILIES / "wan" / "programs.yaml").read_text())
    change(data)
    path = tmp_path / "programs.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("programs"), "the file holds one list"),
        (lambda d: d["programs"][0].update(colour="red"), r"programs\.0: colour: unknown field"),
        (lambda d: d["programs"][1].update(program_id="text_to_video"), "is there twice"),
        (lambda d: d["programs"][0].update(is_default=False), "has 0 default programs"),
        (lambda d: d["programs"][0]["edges"].pop(0), "produced by no node"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, change: Any, message: str) -> None:
    with pytest.raises(InvalidDocument, match=message) as caught:
        load_programs(write(tmp_path, change))
    assert "programs.yaml" in str(caught.value)
