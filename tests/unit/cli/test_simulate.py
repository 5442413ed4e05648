"""`fastvideo simulate`: what it prints, draws and refuses."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fastvideo.cli.main import build
from fastvideo.errors import InvalidField
from fastvideo.model.documents import InvalidDocument
from fastvideo.scheduling.admission import Amounts, Ledger
from fastvideo.simulation.running import run_worlds
from fastvideo.simulation.witness import InvariantBroken, Unsettled
from tests.unit.simulation.traces import SMALL


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump({**SMALL, "description": "a small world"}))
    return file


def simulate(*arguments: object) -> str:
    """What the command prints. Raises what it raises."""
    result = CliRunner().invoke(build(), ["simulate", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_it_prints_what_a_person_plans_with(trace: Path) -> None:
    text = simulate(trace, "--seed", 3)
    for words in ("p50", "p95", "p99", "video: until it starts", "busy", "queue", "cost model"):
        assert words in text


def test_json_is_one_object_with_the_same_figures(trace: Path) -> None:
    run = json.loads(simulate(trace, "--json"))
    assert run["classes"][0]["completed"] == run["requests"] > 20
    assert 0 < run["pools"][0]["utilisation"] <= 1
    assert run == json.loads(simulate(trace, "--json"))


def test_a_change_of_the_trace_changes_the_world(trace: Path) -> None:
    one = json.loads(simulate(trace, "--json", "--set", "pools.gpu.count=1"))
    two = json.loads(simulate(trace, "--json", "--set", "pools.gpu.count=2"))
    assert one["pools"][0]["utilisation"] > 1.2 * two["pools"][0]["utilisation"]


def test_a_world_can_be_stopped_and_looked_at(trace: Path) -> None:
    text = simulate(trace, "--until", 1.0, "--history", 5)
    lines = text.splitlines()[:5]
    assert all(" s  " in line for line in lines)
    assert all(float(line.split()[0]) <= 1.0 for line in lines)


def test_a_world_that_was_stopped_tells_how_busy_it_was(trace: Path) -> None:
    run = json.loads(simulate(trace, "--until", 1.5, "--set", "pools.gpu.count=1", "--json"))
    assert run["pools"][0]["utilisation"] > 0.3


def test_too_few_workers_are_told_with_the_figures(trace: Path) -> None:
    changes = ("--set", "pools.gpu.speeds=[0.01]", "--set", "settle_s=1")
    result = CliRunner().invoke(build(), ["simulate", str(trace), "--json", *changes])
    assert isinstance(result.exception, Unsettled)
    run = json.loads(result.stdout)
    assert run["classes"][0]["completed"] < run["requests"]
    assert run["pools"][0]["utilisation"] > 0.3
    left = run["requests"] - run["classes"][0]["completed"]
    assert f"{left} of {run['requests']} requests had not ended 1 s" in result.exception.message


def test_many_worlds_are_only_checked(trace: Path) -> None:
    with pytest.raises(InvalidField, match="1 with --png, --until and --history"):
        simulate(trace, "--worlds", 3, "--until", 1.0)
    assert "3 worlds" in simulate(trace, "--worlds", 3)


def test_a_picture_is_drawn(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra local")
    picture = tmp_path / "world.png"
    simulate(trace, "--png", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000


def test_what_does_not_hold_is_told_with_the_command_that_shows_it(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaky(self: Ledger, amounts: Amounts) -> None:
        """Nothing is given back."""

    monkeypatch.setattr(Ledger, "release", leaky)
    with pytest.raises(InvariantBroken, match="a leak") as broken:
        simulate(trace, "--seed", 5)
    again = broken.value.attributes["replay"].split()
    assert again[:5] == ["fastvideo", "simulate", str(trace), "--seed", "5"]
    at_s = float(broken.value.attributes["at_s"])
    with pytest.raises(InvariantBroken, match="a leak"):
        simulate(trace, "--seed", 5, "--until", at_s)
    outcomes = list(run_worlds(trace, (), range(2), processes=1))
    assert all("a leak" in outcome.broken for outcome in outcomes)
    assert [outcome.again.split()[4] for outcome in outcomes] == ["0", "1"]


def test_a_wrong_trace_is_refused_by_file_and_key(trace: Path) -> None:
    with pytest.raises(InvalidDocument, match=r"small.yaml: pools.gpu.count: "):
        simulate(trace, "--set", "pools.gpu.count=many")
