"""How a replay's report reads."""

import pytest
import typer

from fastvideo.cli.replay_view import report_lines
from fastvideo.cli.replaying import parse_until
from fastvideo.replay.types import Comparison, PolicyFigures, Promise, ReplayKind, ReplayReport

BITS = Promise(kind="bits", reason="all as it was")


def test_a_difference_is_told_by_step_component_and_layer() -> None:
    first = Comparison(
        subject="denoise 7/20",
        expected="aa",
        found="bb",
        node_id="denoise",
        step=7,
        component="transformer",
        layer="blocks.3[attn]",
        max_abs_difference=0.5,
        event_id="evt_1",
    )
    other = Comparison(subject="denoise 8/20", expected="a", found="b")
    report = ReplayReport(
        kind=ReplayKind.EXECUTION,
        promise=BITS,
        compared=20,
        differing=2,
        first_divergence=first,
        comparisons=(first, other),
        headline="it differs",
        original_traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    lines = "\n".join(report_lines(report))
    for told in (
        "[red]different[/]  it differs",
        "20, of which 2 differ",
        "first divergence: denoise 7/20",
        "component  transformer",
        r"layer      blocks.3\[attn]",
        "apart      0.5",
        "also       denoise 8/20",
        "trace      0af7651916cd43dd8448eb211c80319c",
    ):
        assert told in lines


def test_figures_of_policies_are_a_table() -> None:
    report = ReplayReport(
        kind=ReplayKind.DECISION,
        equal=True,
        promise=Promise(kind="none", reason="simulated"),
        policies=(PolicyFigures(policy="logged", requests=9, utilisation=0.5),),
    )
    lines = list(report_lines(report))
    assert lines[0].startswith("what if")
    assert any(line.split()[:2] == ["logged", "9"] and "50%" in line for line in lines)


def test_a_state_of_the_past_is_shown() -> None:
    shown = Comparison(subject="request r", equal=True, detail='{"status": "X"}')
    report = ReplayReport(kind=ReplayKind.STATE, equal=True, promise=BITS, comparisons=(shown,))
    assert list(report_lines(report))[-1] == '{"status": "X"}'


def test_offsets_are_of_partition_0_unless_another_is_named() -> None:
    assert parse_until(["12", "3:4"]) == {0: 12, 3: 4}


@pytest.mark.parametrize("given", [["x"], ["1:2:3"], ["9" * 19], ["1234567:1"], ["5", "6"], ["-1"]])
def test_offsets_that_are_none_are_wrong_usage(given: list[str]) -> None:
    with pytest.raises(typer.BadParameter):
        parse_until(given)
