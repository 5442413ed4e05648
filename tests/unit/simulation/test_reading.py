"""Traces are read strictly: what is wrong is named by file and key."""

from pathlib import Path

import pytest
import yaml

from fastvideo.model.documents import InvalidDocument
from fastvideo.simulation.reading import read_scenario
from tests.unit.simulation.traces import SMALL, small

ROOT = Path(__file__).resolve().parents[3]
TRACES = [*(ROOT / "docs/simulation").glob("*.yaml"), *(ROOT / "tests/simulation").rglob("*.yaml")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "trace.yaml"
    file.write_text(yaml.safe_dump(SMALL))
    return file


@pytest.mark.parametrize("file", TRACES, ids=lambda file: file.stem)
def test_the_traces_of_this_repository_are_sound(file: Path) -> None:
    assert read_scenario(file).trace.description


@pytest.mark.parametrize(
    ("change", "key", "fault"),
    [
        ("duration_s=0", "duration_s", "more than 0"),
        ("duration_s=soon", "duration_s", "number"),
        ("durations=1", "durations", "unknown field"),
        ("pools.gpu.count=1001", "pools", "1 to 1000"),
        ("pools.gpu.models=[audio]", "pools.gpu.models", "'audio' is none of video"),
        ("pools.gpu.speeds=[0]", "pools.gpu.speeds", "more than 0"),
        ("classes.video.model=audio", "classes.video.model", "none of video"),
        ("classes.video.program=other", "classes.video.program", "none of main"),
        ("classes.video.steps=[]", "classes.video.steps", "at least one"),
        ("classes.video.shapes=[wide]", "classes.video.shapes", "832x480x81"),
        ("classes.video.cancelled=2", "classes.video.cancelled", "0 to 1"),
        ("classes.video.arrivals=[{kind: never}]", "classes.video.arrivals.0", "poisson"),
        ("classes.video.arrivals.0.per_s=-1", "classes.video.arrivals.0", "more than 0"),
        ("models.video.loops.denoise.units=tiles", "models.video.loops.denoise.units", "none of"),
        ("models.video.loops.denoise.base_s=null", "models.video.loops.denoise.base_s", "needs"),
        ("models.video.program.denoise.loop=x", "models.video.loops.x", "not there"),
        ("models.video.card=wan9", "models.video.program", "has the card's programs"),
        ("models.other={card: wan9}", "models.other.card", "known models"),
        ("policy.attempts_max=0", "policy.attempts_max", "more than 0"),
        ("policy.attempts=1", "policy.attempts", "unknown field"),
        ("faults.late_report=1.5", "faults.late_report", "0 to 1"),
        ("faults.pause={every_s: 0}", "faults.pause.every_s", "more than 0"),
        ("duration_s=.inf", "duration_s", "finite"),
        ("noise=.nan", "noise", "finite"),
        ("settle_s=-1", "settle_s", "at least 0"),
        ("pools.gpu.count=-1", "pools.gpu.count", "at least 0"),
        ("pools.gpu.memory_bytes={activations: .nan}", "pools.gpu.memory_bytes", "integer"),
        ("classes.video.arrivals.0.per_s=.nan", "classes.video.arrivals.0.per_s", "finite"),
        ("classes.video.arrivals.0.per_s=1000000", "classes", "2000000 requests would come"),
        ("classes.video.steps=[1000000000]", "classes.video.steps.0", "at most"),
        ("classes.video.shapes=[1000000x8x1]", "classes.video.shapes", "832x480x81"),
        ("classes.video.deadline_s=0", "classes.video.deadline_s", "more than 0"),
        ("models.video.loops.denoise.base_s=-1", "models.video.loops.denoise.base_s", "least 0"),
        ("models.video.program.denoise.after=[write]", "models.video.program", "one another"),
        ("models.video.program.denoise.after=[x]", "models.video.program", "leaves the program"),
        ("network.delay_s=[2, 1]", "network.delay_s", "the least comes first"),
        ("faults.pause={every_s: 0.000001}", "faults.pause.every_s", "at most 100000 happen"),
        ("policy.residency_seconds_min=1000000000000", "policy.residency_seconds_min", "up to"),
        ("policy.worker_budget={compute_second: 1}", "policy.worker_budget", "compute_seconds"),
        ("pools.gpu.count.x=1", "pools.gpu.count.x", "nothing that can be changed"),
        ("pools", "pools", "key=value"),
        ("pools.gpu.count=[", "pools.gpu.count", "'[' is not YAML"),
    ],
)
def test_what_is_wrong_is_named(path: Path, change: str, key: str, fault: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        read_scenario(path, [change])
    assert refused.value.source == "trace.yaml"
    named = {at: said for at, said in refused.value.problems.items() if at.startswith(key)}
    assert named, refused.value.problems
    assert any(fault in said for said in named.values()), named


def test_a_change_is_part_of_the_command_that_runs_it_again(path: Path) -> None:
    scenario = read_scenario(path, ["pools.gpu.count=3", "policy.tenant_weights={a: 2}"])
    assert scenario.trace.pools["gpu"].count == 3
    assert (
        scenario.arguments
        == f"{path} --set pools.gpu.count=3 --set 'policy.tenant_weights={{a: 2}}'"
    )


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocument, match=r"none.yaml: file: cannot be read: No such file"):
        read_scenario(tmp_path / "none.yaml")


def test_a_trace_may_be_made_in_code() -> None:
    assert small(duration_s=5.0).trace.duration_s == 5.0
