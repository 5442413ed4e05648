"""The six authoring files: read strictly, checked together, every fault with its place."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fastvideo.cli.main import build
from fastvideo.deployment.project import InvalidProject, ProjectFault, read_project
from fastvideo.deployment.schemas import authoring_schemas
from fastvideo.errors import NotFound
from fastvideo.requests.types import Capture

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "moving-digits"
FILES = ("model", "loops", "parallel", "programs", "deployment", "training")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example, to be changed."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "project"))


def change(folder: Path, file: str, old: str, new: str) -> None:
    path = folder / f"{file}.yaml"
    text = path.read_text()
    assert old in text, f"{file}.yaml has no {old!r}"
    path.write_text(text.replace(old, new, 1))


def faults(folder: Path) -> tuple[ProjectFault, ...]:
    with pytest.raises(InvalidProject) as caught:
        read_project(folder)
    return caught.value.faults


def test_the_files_become_typed_specs() -> None:
    project = read_project(EXAMPLE)
    card = project.card
    assert card is not None
    assert (card.model_id, card.family) == ("my-digits", "wan")
    # Its own, and what its base has.
    assert card.sampling["steps"].default_value == 12
    assert card.sampling["fps"].default_value == 8
    assert card.loops["denoise"].step_policy.max_batch == 8
    assert card.loops["denoise"].step_policy.batchable
    assert card.components["transformer"].placement_policy == "device"
    assert len(card.parallelism.valid_plans) == 1
    assert [node.node_id for node in project.programs["text_to_video"].nodes] == [
        "encode",
        "denoise",
        "decode",
        "write",
    ]
    assert [pool.replicas for pool in project.deployment.role_pools] == [2]
    assert project.deployment.scheduling.slo_classes["interactive"].target_seconds == 2.0
    assert project.training is not None
    assert project.training.rollout.group_size == 24
    assert project.training.capture is Capture.BEHAVIOR
    assert sorted(project.cards) == ["moving-digits", "my-digits"]


@pytest.mark.row("CNF-08")
@pytest.mark.parametrize(
    ("file", "old", "new", "key"),
    [
        ("model", "description:", "descripton: x\ndescription:", "descripton"),
        (
            "loops",
            "max_batch: 8",
            "max_batch: 8, max_bach: 2",
            "loops.denoise.step_policy.max_bach",
        ),
        ("loops", "loops:", "loop: {}\nloops:", "loop"),
        ("parallel", "axes: []", "axis: []", "axis"),
        ("programs", "is_default: true", "is_defualt: true", "is_defualt"),
        ("deployment", "replicas: 2", "replicas: 2, replica: 3", "role_pools.0.replica"),
        ("deployment", "target_seconds", "target_second", "target_second"),
        ("training", "group_size", "groupsize", "rollout.groupsize"),
        ("model", "base:", "loops: {}\nbase:", "loops"),
    ],
)
def test_an_unknown_field_is_an_error_of_its_file_and_key(
    folder: Path, file: str, old: str, new: str, key: str
) -> None:
    change(folder, file, old, new)
    assert any(fault.file == f"{file}.yaml" and key in fault.key for fault in faults(folder))


CROSS = [
    ("deployment", "models: [my", "models: [other, my", "deployment.yaml", "models.0"),
    ("deployment", "models: [my-digits, m", "models: [my-digits, n", "deployment.yaml", "models.1"),
    ("loops", "max_batch: 8", "max_batch: 8}\n    components: [unet]\n    x: {", "loops.yaml", "x"),
    ("programs", "loop_id: decode", "loop_id: decoder", "programs.yaml", "nodes.decode.loop_id"),
    ("programs", "capability: text_to_video", "capability: text_to_audio", "programs.yaml", ""),
    ("training", "sampler: flow_sde", "sampler: ddim", "training.yaml", "rollout.sampler"),
    ("training", "program_id: text_to", "program_id: txt_to", "training.yaml", "program_id"),
    (
        "training",
        "program_id: score",
        "program_id: scores",
        "training.yaml",
        "rewards.0.program_id",
    ),
    ("training", "[transformer]", "[unet]", "training.yaml", "weight_sync.components"),
    ("training", "flow_grpo", "ppo", "training.yaml", "method"),
    ("deployment", "reserved_places: 1", "pool: gpu", "deployment.yaml", "slo_classes.interactive"),
    ("model", "base: moving-digits", "base: digits", "model.yaml", "base"),
    ("parallel", ": device", ": moon", "parallel.yaml", "placement.transformer"),
    ("parallel", "axes: {}", "axes: {tp: 2}", "parallel.yaml", "valid_plans"),
    ("parallel", "transformer: device", "unet: device", "model.yaml", "components.unet"),
]


@pytest.mark.row("CNF-07")
@pytest.mark.parametrize(("file", "old", "new", "told", "key"), CROSS)
def test_a_reference_that_leads_nowhere_is_told_with_file_and_key(
    folder: Path, file: str, old: str, new: str, told: str, key: str
) -> None:
    change(folder, file, old, new)
    found = faults(folder)
    assert any(fault.file == told and key in fault.key for fault in found), found


def test_all_faults_are_told_at_once(folder: Path) -> None:
    change(folder, "training", "sampler: flow_sde", "sampler: ddim")
    change(folder, "training", "[transformer]", "[unet]")
    change(folder, "deployment", "replicas: 2", "replicas: 0")
    assert {(fault.file, fault.key) for fault in faults(folder)} == {
        ("training.yaml", "rollout.sampler"),
        ("training.yaml", "weight_sync.components"),
        ("deployment.yaml", "role_pools.0.replicas"),
    }


@pytest.mark.row("VAL-01")
def test_the_state_of_every_loop_is_declared(folder: Path) -> None:
    assert "wan.denoise.v1" in read_project(folder).state_schemas
    (folder / "loops.yaml").write_text("loops: {decode: {state_schema: mine.decode.v1}}\n")
    (fault,) = faults(folder)
    assert (fault.file, fault.key) == ("loops.yaml", "loops.decode.state_schema")
    assert "mine.decode.v1" in fault.fault
    own = "state_schemas: {mine.decode.v1: {state: [{name: latents, dims: [C], dtype: float32}]}}"
    (folder / "loops.yaml").write_text(
        f"{own}\nloops: {{decode: {{state_schema: mine.decode.v1}}}}\n"
    )
    assert read_project(folder).state_schemas["mine.decode.v1"].state[0].dims == ("C",)
    change(folder, "loops", "dtype: float32", "dtype: ''")
    assert ("loops.yaml", "state_schemas.mine.decode.v1.state.0.dtype") in {
        (fault.file, fault.key) for fault in faults(folder)
    }


@pytest.mark.row("VAL-02")
def test_a_program_needs_what_the_model_can_do(folder: Path) -> None:
    change(
        folder, "model", "variants: []", "variants: []\ncapabilities: {capabilities: [vae_decode]}"
    )
    (fault, *_) = faults(folder)
    assert (fault.file, fault.key) == ("programs.yaml", "programs")
    assert "vae_decode" in fault.fault


@pytest.mark.row("VAL-03")
@pytest.mark.parametrize(
    ("change_to", "key"),
    [
        ("producers: [nobody]", "caches.text_features.producers"),
        ("consumers: [write]", "caches.text_features.consumers"),
        ("producers: []", "caches.text_features.producers"),
        ("key_fields: [model_id]", "caches.text_features.key_fields"),
    ],
)
def test_a_cache_has_valid_producers_and_consumers(folder: Path, change_to: str, key: str) -> None:
    change(folder, "loops", "loops:", f"caches: {{text_features: {{{change_to}}}}}\nloops:")
    assert ("loops.yaml", key) in {(fault.file, fault.key) for fault in faults(folder)}


@pytest.mark.row("VAL-04")
def test_a_checkpoint_is_verified_against_its_manifest(folder: Path) -> None:
    own = ROOT / "libs/fastvideo/models/wan/checkpoints/moving-digits"
    shutil.copytree(own, folder / "weights" / "moving-digits")
    change(folder, "deployment", "models:", "checkpoints: weights\nmodels:")
    assert read_project(folder).checkpoints
    manifest = folder / "weights/moving-digits/manifest.json"
    document = json.loads(manifest.read_text())
    tensors = document["shape_map"]["transformer"]["tensors"]
    first, second = dict(tensors[0]), dict(tensors[1])
    wrong = {
        "has shape": [first | {"shape": [first["shape"][0] + 1, *first["shape"][1:]]}, second],
        "is missing": [first, second, first | {"key": "nowhere.weight"}],
        "is not in the manifest": [second],
    }
    for told, those in wrong.items():
        document["shape_map"]["transformer"]["tensors"] = [*those, *tensors[2:]]
        manifest.write_text(json.dumps(document))
        (fault, *_) = faults(folder)
        assert (fault.file, fault.key) == ("deployment.yaml", "checkpoints.moving-digits")
        key = "nowhere.weight" if told == "is missing" else first["key"]
        assert f"{key!r} {told}" in fault.fault


@pytest.mark.row("VAL-05")
def test_pools_serve_what_the_programs_need_and_values_have_a_way(folder: Path) -> None:
    change(folder, "deployment", "{role: worker, replicas: 2", "{role: encode, replicas: 2")
    assert any("'worker'" in fault.fault for fault in faults(folder))

    for name in ("encode", "denoise", "decode", "write"):
        change(folder, "programs", f"node_id: {name},", f"node_id: {name}, role: {name},")
    text = "models: [my-digits]\nrole_pools:\n"
    roles = ("encode", "denoise", "decode", "write")
    text += "".join(f"  - {{role: {role}, replicas: 1}}\n" for role in roles)
    (folder / "deployment.yaml").write_text(text)
    change(folder, "training", "program_id: score_latents", "program_id: text_to_video")
    told = faults(folder)
    assert {fault.key for fault in told} == {"transport.backend"}
    assert "text_features" in told[0].fault
    (folder / "deployment.yaml").write_text(text + "transport: {backend: grpc}\n")
    assert read_project(folder).deployment.transport.backend == "grpc"


def test_what_is_there_and_cannot_be_read_is_a_fault(folder: Path) -> None:
    (folder / "loops.yaml").unlink()
    (folder / "loops.yaml").symlink_to("/nowhere")
    (folder / "training.yaml").unlink()
    (folder / "training.yaml").mkdir()
    found = [(one.file, one.key) for one in faults(folder)]
    assert found == [("loops.yaml", "file"), ("training.yaml", "file")]


def test_a_folder_may_deploy_installed_models_alone(tmp_path: Path) -> None:
    (tmp_path / "deployment.yaml").write_text("models: [moving-digits]\n")
    project = read_project(tmp_path)
    assert (project.card, sorted(project.cards)) == (None, ["moving-digits"])


def test_what_is_no_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_project(tmp_path / "absent")
    (tmp_path / "modle.yaml").write_text("{}")
    assert {fault.file for fault in faults(tmp_path)} == {"modle.yaml", "deployment.yaml"}


@pytest.mark.parametrize(
    "text", ["[", "- 1", "models: 5", "models: [1]", "", "models: !!python/x y"]
)
def test_nonsense_is_told_by_file(folder: Path, text: str) -> None:
    (folder / "deployment.yaml").write_text(text)
    assert "deployment.yaml" in {fault.file for fault in faults(folder)}


def test_what_belongs_to_a_model_that_is_wrong_is_not_told_that_it_is_missing(
    folder: Path,
) -> None:
    (folder / "model.yaml").write_text("[")
    assert {fault.file for fault in faults(folder)} == {"model.yaml"}


def test_the_command_s_exit_code_says_whether_all_is_sound(folder: Path) -> None:
    run = CliRunner().invoke
    sound = run(build(), ["validate", str(folder), "--json"])
    assert (sound.exit_code, json.loads(sound.stdout)["valid"]) == (0, True)
    change(folder, "training", "sampler: flow_sde", "sampler: ddim")
    wrong = run(build(), ["validate", str(folder), "--json"])
    assert wrong.exit_code == 1
    (fault,) = json.loads(wrong.stdout)["faults"]
    assert (fault["file"], fault["key"]) == ("training.yaml", "rollout.sampler")
    assert "training.yaml: rollout.sampler" in run(build(), ["validate", str(folder)]).output


@pytest.mark.row("CNF-01", "CNF-02", "CNF-03", "CNF-04", "CNF-05", "CNF-06")
@pytest.mark.parametrize(
    ("file", "old", "new", "key"),
    [
        ("model", "default_value: 12", "default_value: -1", "sampling.steps"),
        ("loops", "max_batch: 8", "max_batch: many", "step_policy.max_batch"),
        ("parallel", "mesh_order: []", "mesh_order: 3", "mesh_order"),
        ("programs", "kind: inline", "kind: online", "kind"),
        ("deployment", "priority_min: 10", "priority_min: high", "priority_min"),
        ("training", "group_size: 24", "group_size: few", "rollout.group_size"),
    ],
)
def test_each_file_is_loaded_by_the_command_into_what_is_typed(
    folder: Path, file: str, old: str, new: str, key: str
) -> None:
    run = CliRunner().invoke
    assert run(build(), ["validate", str(folder), "--json"]).exit_code == 0
    change(folder, file, old, new)
    refused = run(build(), ["validate", str(folder), "--json"])
    assert refused.exit_code == 1
    (fault,) = json.loads(refused.stdout)["faults"]
    assert fault["file"] == f"{file}.yaml"
    assert key in fault["key"]


def test_a_model_and_a_folder_are_described(folder: Path) -> None:
    run = CliRunner().invoke
    shown = run(build(), ["describe", "moving-digits"])
    assert shown.exit_code == 0
    for word in (
        "transformer",
        "denoise",
        "text_to_video",
        "guidance_scale",
        "wan.denoise.v1",
        "latents float32",
    ):
        assert word in shown.stdout
    record = json.loads(run(build(), ["describe", "moving-digits", "--json"]).stdout)
    assert record["card"]["loops"]["denoise"]["unit_kind"] == "diffusion_step"
    assert record["state_schemas"]["wan.decode.v1"]["step"][1]["dtype"] == "uint8"
    one = json.loads(run(build(), ["describe", "moving-digits/image_to_video", "--json"]).stdout)
    assert one["programs"] == ["image_to_video"]
    project = json.loads(run(build(), ["describe", str(folder), "--json"]).stdout)
    assert project["training"]["rollout"]["group_size"] == 24


def test_the_committed_schemas_are_those_of_the_program() -> None:
    """Regenerate with `fastvideo schemas docs/schemas`."""
    for name, schema in authoring_schemas().items():
        committed = json.loads((ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text())
        assert committed == json.loads(json.dumps(schema)), name
    assert set(authoring_schemas()) == set(FILES)
