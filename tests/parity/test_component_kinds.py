"""Every kind of component loads by its spec, with the bits of what was saved."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fastvideo.errors import CheckpointError, InvalidField
from fastvideo.model.component_classes import UPSTREAM_CLASSES
from fastvideo.model.documents import InvalidDocument, parse
from fastvideo.model.manifest import main as rewrite_manifest
from fastvideo.model.specs import ComponentKind, ComponentSpec, PrecisionPolicy
from fastvideo.models.loading import (
    LOADERS,
    LowRankAdapter,
    VerifiedCheckpoint,
    load_component,
    open_checkpoint,
)
from tests.parity.small_components import (
    adapted_transformer,
    cases,
    noise,
    save,
    seeded,
    velocity,
    wan_transformer,
)

DIT = cases()[ComponentKind.DIT].spec
ADAPTER = cases()[ComponentKind.ADAPTER].spec


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> VerifiedCheckpoint:
    """A checkpoint with a component of every kind."""
    folder = tmp_path_factory.mktemp("kinds")
    return open_checkpoint(save(folder, list(cases().values())))


@pytest.fixture
def copied(checkpoint: VerifiedCheckpoint, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(checkpoint.folder, folder)
    return folder


def reopened(folder: Path) -> VerifiedCheckpoint:
    """The folder with a manifest of what is in it now."""
    assert rewrite_manifest([str(folder)]) == 0
    return open_checkpoint(folder)


@pytest.mark.row("MOD-06")
@pytest.mark.parametrize("kind", ComponentKind)
def test_a_component_of_every_kind_gives_the_bits_of_what_was_saved(
    kind: ComponentKind, checkpoint: VerifiedCheckpoint
) -> None:
    case = cases()[kind]

    loaded = load_component(case.spec, checkpoint)

    found, wanted = case.outputs(loaded), case.outputs(seeded(case.make))
    assert len(found) == len(wanted) > 0
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    if isinstance(loaded, torch.nn.Module):
        assert not loaded.training
        assert not any(parameter.requires_grad for parameter in loaded.parameters())


@pytest.mark.row("MOD-06")
def test_every_kind_has_a_loader_and_classes_that_exist() -> None:
    assert set(LOADERS) == set(UPSTREAM_CLASSES) == set(ComponentKind)
    for kind, names in UPSTREAM_CLASSES.items():
        for name in names:
            library, _, cls = name.partition(".")
            assert hasattr(__import__(library), cls), f"{kind}: {name}"


@pytest.mark.row("MOD-06")
@pytest.mark.parametrize("kind", ComponentKind)
def test_a_class_that_is_none_of_its_kind_is_refused_with_the_allowed_ones(
    kind: ComponentKind, checkpoint: VerifiedCheckpoint
) -> None:
    spec = replace(cases()[kind].spec, load_id="os.system")
    with pytest.raises(InvalidField, match=r"'os\.system'") as caught:
        load_component(spec, checkpoint)
    assert caught.value.field == f"components.{kind}.load_id"
    assert all(name in caught.value.allowed for name in UPSTREAM_CLASSES[kind])


@pytest.mark.row("MOD-06")
def test_a_kind_that_does_not_exist_is_refused_with_the_allowed_ones() -> None:
    data = {"component_id": "x", "kind": "oracle", "precision_policy": {}}
    with pytest.raises(InvalidDocument, match=r"card\.yaml: kind: .*'dit'.*'safety_head'"):
        parse(ComponentSpec, data, "card.yaml")


def test_parameters_take_the_dtype_of_the_card(checkpoint: VerifiedCheckpoint) -> None:
    half = PrecisionPolicy(param_dtype="bfloat16", compute_dtype="bfloat16")
    module = load_component(replace(DIT, precision_policy=half), checkpoint)
    assert module.blocks[0].attn1.to_q.weight.dtype == torch.bfloat16
    full = load_component(replace(DIT, precision_policy=PrecisionPolicy()), checkpoint)
    assert {parameter.dtype for parameter in full.parameters()} == {torch.float32}


def test_parameters_lie_where_the_card_wants_them(checkpoint: VerifiedCheckpoint) -> None:
    worker = torch.device("meta")
    on_worker = load_component(DIT, checkpoint, worker)
    on_host = load_component(replace(DIT, placement_policy="cpu"), checkpoint, worker)
    assert {parameter.device for parameter in on_worker.parameters()} == {worker}
    assert {parameter.device for parameter in on_host.parameters()} == {torch.device("cpu")}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"precision_policy": PrecisionPolicy(param_dtype="int3")}, "precision_policy.param_dtype"),
        (
            {"precision_policy": PrecisionPolicy(param_dtype="float16", compute_dtype="float32")},
            "precision_policy.compute_dtype",
        ),
        ({"placement_policy": "moon"}, "placement_policy"),
        ({"subfolder": "../elsewhere"}, "subfolder"),
        ({"subfolder": ""}, "subfolder"),
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused_by_its_name(
    change: dict[str, object], field: str, checkpoint: VerifiedCheckpoint
) -> None:
    with pytest.raises(InvalidField) as caught:
        load_component(replace(DIT, **change), checkpoint)  # type: ignore[arg-type]
    assert caught.value.field == f"components.dit.{field}"


def test_pickled_weights_are_not_read(copied: Path) -> None:
    weights = copied / "dit" / "diffusion_pytorch_model.safetensors"
    torch.save(load_file(weights), copied / "dit" / "diffusion_pytorch_model.bin")
    weights.unlink()
    with pytest.raises(CheckpointError, match=r"dit: .*pickle files are not read: .*\.bin"):
        load_component(DIT, reopened(copied))


def test_a_file_that_the_manifest_does_not_have_is_not_read(copied: Path) -> None:
    checkpoint = open_checkpoint(copied)
    (copied / "tokenizer" / "added_tokens.json").write_text(json.dumps({"sesame": 99}))
    with pytest.raises(CheckpointError, match=r"not in the manifest: tokenizer/added_tokens"):
        load_component(cases()[ComponentKind.TOKENIZER].spec, checkpoint)


def test_a_component_without_a_folder_is_named(checkpoint: VerifiedCheckpoint) -> None:
    with pytest.raises(CheckpointError, match="dit: nowhere/ has no files"):
        load_component(replace(DIT, subfolder="nowhere"), checkpoint)


def test_weights_of_another_class_are_refused(checkpoint: VerifiedCheckpoint) -> None:
    """A head that the checkpoint lacks would otherwise be drawn at random."""
    spec = cases()[ComponentKind.REASONER].spec
    headless = replace(
        spec,
        kind=ComponentKind.REWARD_HEAD,
        load_id="transformers.Qwen2ForSequenceClassification",
    )
    with pytest.raises(CheckpointError, match=r"reasoner .*missing keys: score\.weight"):
        load_component(headless, checkpoint)


def test_code_of_a_checkpoint_is_not_run(copied: Path, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    config = copied / "reasoner" / "config.json"
    remote = {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"}
    config.write_text(json.dumps({**json.loads(config.read_text()), "auto_map": remote}))
    (copied / "reasoner" / "evil.py").write_text(f"open({str(witness)!r}, 'w').close()")
    case = cases()[ComponentKind.REASONER]

    loaded = load_component(case.spec, reopened(copied))

    assert torch.equal(case.outputs(loaded)[0], case.outputs(seeded(case.make))[0])
    assert not witness.exists()


def test_an_adapter_in_the_layout_of_peft_gives_the_same_bits(copied: Path) -> None:
    path = copied / "adapter" / "pytorch_lora_weights.safetensors"
    tensors = load_file(path)
    path.unlink()
    save_file(
        {f"base_model.model.{key}": tensor for key, tensor in tensors.items()},
        copied / "adapter" / "adapter_model.safetensors",
    )
    adapted_transformer().peft_config["adapter"].save_pretrained(copied / "adapter")
    module = seeded(wan_transformer)

    load_component(ADAPTER, reopened(copied)).bind(module)

    assert torch.equal(velocity(module)[0], velocity(seeded(adapted_transformer))[0])


def test_an_adapter_names_the_layers_that_it_changes(checkpoint: VerifiedCheckpoint) -> None:
    adapter: LowRankAdapter = load_component(ADAPTER, checkpoint)
    module = seeded(wan_transformer)
    state = torch.random.get_rng_state()

    bound = adapter.bind(module)

    assert bound == adapter.layers
    assert set(bound) == {
        f"blocks.{block}.{attention}.{layer}"
        for block in range(2)
        for attention in ("attn1", "attn2")
        for layer in ("to_q", "to_v")
    }
    assert not torch.equal(velocity(module)[0], velocity(seeded(wan_transformer))[0])
    assert not any(parameter.requires_grad for parameter in module.parameters())
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.row("MOD-06")
def test_an_adapter_that_fits_no_layer_of_a_module_is_refused(
    checkpoint: VerifiedCheckpoint,
) -> None:
    adapter = load_component(ADAPTER, checkpoint)
    other = cases()[ComponentKind.REASONER]
    module = seeded(other.make)
    with pytest.raises(CheckpointError, match=r"adapter does not fit Qwen2.*no layer blocks\.0"):
        adapter.bind(module)
    assert torch.equal(other.outputs(module)[0], other.outputs(seeded(other.make))[0])


def test_an_adapter_of_another_size_is_refused(checkpoint: VerifiedCheckpoint) -> None:
    adapter = load_component(ADAPTER, checkpoint)
    module = seeded(wan_transformer)
    module.blocks[1].attn2.to_v = torch.nn.Linear(8, 8)
    with pytest.raises(CheckpointError, match=r"blocks\.1\.attn2\.to_v is \[8, 8\], the adapter"):
        adapter.bind(module)
    assert not hasattr(module.blocks[0].attn1.to_q, "lora_A")


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("blocks.0.attn1.to_q.lora_A.weight", "'blocks.0.attn1.to_q.lora_A.weight' is missing"),
        (None, "allowed: layer.lora_A.weight"),
    ],
)
def test_a_tensor_that_is_missing_or_unknown_is_named(
    key: str | None, fault: str, copied: Path
) -> None:
    path = copied / "adapter" / "pytorch_lora_weights.safetensors"
    tensors = load_file(path)
    if key is None:
        tensors["blocks.0.attn1.to_q.hada_w1"] = noise(2, 2)
    else:
        del tensors[key]
    save_file(tensors, path)
    with pytest.raises(CheckpointError) as caught:
        load_component(ADAPTER, reopened(copied))
    assert fault in caught.value.message


def test_an_adapter_that_says_no_scale_is_refused(copied: Path) -> None:
    path = copied / "adapter" / "pytorch_lora_weights.safetensors"
    save_file(load_file(path), path)
    with pytest.raises(CheckpointError, match="nothing says rank and scale"):
        load_component(ADAPTER, reopened(copied))
