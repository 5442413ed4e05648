"""What a stack runs for a folder's files, and what of them it refuses."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fastvideo.cli.main import build
from fastvideo.cli.serve import _environment, _policy_file
from fastvideo.deployment.catalog import Catalog
from fastvideo.deployment.project import InvalidProject, read_project
from fastvideo.deployment.servables import find_servable
from fastvideo.deployment.serving import ServedStack, stack_of_models, stack_of_project
from fastvideo.errors import CheckpointError, NotFound
from fastvideo.local.config import StackOptions, load_config
from fastvideo.local.folder import DataFolder
from fastvideo.local.lock import StackLock
from fastvideo.local.services import ServerUrls, service_names, service_parts
from fastvideo.scheduling.policy import SchedulingPolicy

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "moving-digits"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example without its training."""
    ignored = shutil.ignore_patterns("training.yaml")
    return Path(shutil.copytree(EXAMPLE, tmp_path / "project", ignore=ignored))


def write(folder: Path, **deployment: object) -> None:
    (folder / "deployment.yaml").write_text(yaml.safe_dump(deployment))


def served(folder: Path) -> ServedStack:
    return stack_of_project(read_project(folder))


@pytest.mark.row("CNF-05", "VAL-05", "API-06")
def test_a_stack_is_what_the_files_say(folder: Path) -> None:
    write(
        folder,
        models=["my-digits", "moving-digits"],
        schedulers=2,
        threads=1,
        memory_bytes=1_000_000_000,
        keys=True,
        role_pools=[
            {"role": "worker", "replicas": 2, "models": ["my-digits"]},
            {"role": "worker", "replicas": 1, "models": ["moving-digits"]},
        ],
        scheduling={"slo_classes": {"interactive": {"priority_min": 10, "target_seconds": 2.0}}},
    )
    stack = served(folder)
    assert stack.workers == (("my-digits",), ("my-digits",), ("moving-digits",))
    assert (stack.schedulers, stack.threads, stack.keys) == (2, 1, True)
    assert stack.families == (str(folder),)
    assert stack.policy is not None
    assert stack.policy.slo_classes["interactive"].target_seconds == 2.0

    options = StackOptions(
        folder / "data",
        workers=3,
        schedulers=2,
        keys=True,
        worker_models=stack.workers,
    )
    assert StackOptions.from_json(options.to_json()) == options
    config = load_config(options, _environment({"PATH": "/bin"}, stack))
    names = (*service_names(3, 2), "gateway-http")
    ports = {name: 9000 + index for index, name in enumerate(names)}
    urls = ServerUrls("postgresql://x", "nats://x", "redis://x")
    parts = {part.name: part.environment for part in service_parts(config, ports, urls, ())}
    assert parts["worker-1"]["FASTVIDEO_MODELS"] == "my-digits"
    assert parts["worker-2"]["FASTVIDEO_MODELS"] == "my-digits"
    assert parts["worker-3"]["FASTVIDEO_MODELS"] == "moving-digits"
    assert parts["gateway"]["FASTVIDEO_MODELS"] == "my-digits,moving-digits"
    for environment in parts.values():
        assert environment["FASTVIDEO_FAMILIES"] == str(folder)
        assert environment["FASTVIDEO_THREADS"] == "1"
        assert environment["FASTVIDEO_MEMORY_BYTES"] == "1000000000"


WRONG = {"schedulers": 0, "threads": -1, "memory_bytes": -1}
ELSEWHERE = {
    "models": ["my-digits", "wan2.1-t2v-1.3b"],
    "role_pools": [{"role": "encoder", "replicas": 1}, {"role": "worker", "replicas": 1}],
    "fleet": {"router": "dynamo", "region": "north"},
    "transport": {"backend": "grpc", "endpoints": [{"backend": "grpc"}]},
    "scheduling": {"slo_classes": {"a": {"mesh": "tp"}}},
}


@pytest.mark.row("CNF-05", "API-06")
@pytest.mark.parametrize(
    ("document", "keys"),
    [
        (WRONG, set(WRONG)),
        (
            ELSEWHERE,
            {
                "models.1",
                "role_pools.0.role",
                "fleet.router",
                "fleet.region",
                "transport.endpoints",
                "scheduling.slo_classes.a.mesh",
            },
        ),
    ],
)
def test_what_no_stack_here_does_is_refused_with_its_key(
    folder: Path, document: dict[str, object], keys: set[str]
) -> None:
    write(folder, **{"models": ["my-digits"], **document})
    with pytest.raises(InvalidProject) as caught:
        served(folder)
    assert {(fault.file, fault.key) for fault in caught.value.faults} == {
        ("deployment.yaml", key) for key in keys
    }
    told = CliRunner().invoke(build(), ["serve", str(folder), "--data", str(folder / "data")])
    assert told.exit_code == 1
    for key in keys:
        assert f"deployment.yaml: {key}: " in told.output
    assert not (folder / "data").exists()


@pytest.mark.row("API-13")
def test_a_project_s_model_and_its_workflow_are_served_by_their_ids(folder: Path) -> None:
    programs = yaml.safe_load((folder / "programs.yaml").read_text())
    (plain,) = programs["programs"]
    workflow = {**plain, "program_id": "digits_flow", "kind": "workflow", "is_default": False}
    (folder / "programs.yaml").write_text(yaml.safe_dump({"programs": [plain, workflow]}))
    catalog = Catalog.load(["my-digits", "moving-digits"], packages=[str(folder)])
    entry, program = find_servable(catalog, "my-digits/digits_flow")
    assert entry.unavailable_reason == ""
    assert entry.card.sampling["steps"].default_value == 12
    assert program is not None
    assert program.kind.value == "workflow"
    assert catalog.get("moving-digits").programs.keys() > {"text_to_video"}


def test_a_project_s_model_has_a_name_of_its_own(folder: Path) -> None:
    text = (folder / "model.yaml").read_text().replace("my-digits", "moving-digits", 1)
    (folder / "model.yaml").write_text(text)
    write(folder, models=["moving-digits"])
    with pytest.raises(InvalidProject, match="is an installed model"):
        Catalog.load(packages=[str(folder)])


def test_models_are_served_by_their_ids() -> None:
    assert stack_of_models(["moving-digits"]).workers == (("moving-digits",),)
    with pytest.raises(NotFound):
        stack_of_models(["another"])
    with pytest.raises(CheckpointError):
        stack_of_models(["wan2.1-t2v-1.3b"])


def test_programs_without_a_model_are_told(tmp_path: Path) -> None:
    write(tmp_path, models=["moving-digits"])
    shutil.copy(EXAMPLE / "programs.yaml", tmp_path)
    with pytest.raises(InvalidProject, match=r"programs.yaml: file: belongs to a model.yaml"):
        read_project(tmp_path)


def test_a_stack_that_runs_keeps_the_policy_that_it_began_with(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    path = _policy_file(folder, SchedulingPolicy(window_steps_max=3))
    assert path is not None
    with StackLock(folder):
        assert _policy_file(folder, SchedulingPolicy(window_steps_max=5)) == path
    assert json.loads(path.read_text())["window_steps_max"] == 3
