"""Loading the embedded model: what is verified, what is checked, what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fastvideo.errors import CheckpointError, ContractViolation, InvalidField
from fastvideo.loops.runner import run_loop
from fastvideo.model.card import card_digest
from fastvideo.model.manifest import main as write_manifest
from fastvideo.model.manifest import manifest_digest, read_manifest
from fastvideo.models.registry import load_instance_parts
from fastvideo.models.resident import StandaloneModel
from fastvideo.requests.types import RequestKind
from tests.parity.wan import embedded_entry, embedded_folder, embedded_model, generation


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    folder = tmp_path / "moving-digits"
    shutil.copytree(embedded_folder(), folder)
    return folder


@pytest.mark.row("PHX-01", "MOD-06")
def test_the_model_loads_from_its_card_and_verified_checkpoint() -> None:
    model, entry = embedded_model(), embedded_entry()
    assert set(model.components) == set(entry.card.components)
    assert set(model.kernels) == set(entry.card.loops) - {"write"}
    assert model.weights_version == manifest_digest(read_manifest(embedded_folder()))
    assert card_digest(model.card) == entry.card_digest
    assert model.parts.weights_bytes > 18_000_000
    assert model.parts.fingerprint["torch"] == torch.__version__
    assert "exact_rows/8x3x6x6/32" in model.parts.fingerprint
    for name in ("transformer", "text_encoder", "vae"):
        parameters = list(model.components[name].parameters())
        assert {parameter.dtype for parameter in parameters} == {torch.float32}
        assert not any(parameter.requires_grad for parameter in parameters)
        assert not model.components[name].module.training


@pytest.mark.row("CKP-03")
def test_a_corrupt_checkpoint_is_not_loaded(copied: Path) -> None:
    weights = copied / "transformer" / "diffusion_pytorch_model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-100] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match="transformer/diffusion_pytorch_model"):
        load_instance_parts(embedded_entry().card, copied)


def test_a_missing_key_is_named_even_when_the_manifest_agrees(copied: Path) -> None:
    path = copied / "transformer" / "diffusion_pytorch_model.safetensors"
    tensors = load_file(path)
    del tensors["proj_out.bias"]
    save_file(tensors, path)
    assert write_manifest([str(copied)]) == 0
    with pytest.raises(CheckpointError, match=r"transformer .*missing keys: proj_out\.bias"):
        load_instance_parts(embedded_entry().card, copied)


def test_an_older_configuration_and_weights_in_several_files_load_alike(copied: Path) -> None:
    """As public checkpoints have them: keys that later versions added are absent."""
    path = copied / "vae" / "config.json"
    config = json.loads(path.read_text())
    for later in ("scale_factor_spatial", "scale_factor_temporal", "patch_size", "is_residual"):
        del config[later]
    path.write_text(json.dumps(config))
    (copied / "text_encoder" / "model.safetensors").unlink()
    encoder = embedded_model().components["text_encoder"].module
    encoder.save_pretrained(copied / "text_encoder", max_shard_size="100KB")
    assert len(list((copied / "text_encoder").glob("*.safetensors"))) > 1
    assert write_manifest([str(copied)]) == 0
    assert read_manifest(copied).sharding == "indexed_files"
    entry, original = embedded_entry(), embedded_model()

    parts = load_instance_parts(entry.card, copied)

    assert parts.weights_version != original.weights_version
    assert all_digests(StandaloneModel(card=entry.card, parts=parts)) == all_digests(original)


def all_digests(model: StandaloneModel) -> dict[str, str]:
    request = generation(steps=1)
    encoded = run_loop(model.kernels["encode"], request, {}, model)
    denoised = run_loop(model.kernels["denoise"], request, encoded.values, model)
    decoded = run_loop(model.kernels["decode"], request, denoised.values, model)
    return {**encoded.digests, **denoised.digests, **decoded.digests}


@pytest.mark.row("MOD-07")
def test_another_configuration_than_the_cards_is_refused(copied: Path) -> None:
    path = copied / "vae" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "z_dim": 16}))
    assert write_manifest([str(copied)]) == 0
    with pytest.raises(CheckpointError, match="vae: z_dim is 16; the card says 8"):
        load_instance_parts(embedded_entry().card, copied)


@pytest.mark.row("MOD-07")
def test_a_component_refuses_a_wrong_shape_or_dtype_by_its_name() -> None:
    parts = embedded_model().components
    rows, times, text = torch.zeros(2, 8, 3, 6, 6), torch.zeros(2).long(), torch.zeros(2, 32, 64)
    with pytest.raises(ContractViolation, match=r"transformer: hidden_states .*in_channels = 8"):
        parts["transformer"](torch.zeros(2, 16, 3, 6, 6), times, text)
    with pytest.raises(ContractViolation, match="transformer: timestep is float32"):
        parts["transformer"](rows, times.float(), text)
    with pytest.raises(ContractViolation, match=r"transformer: encoder_hidden_states .*B = 2"):
        parts["transformer"](rows, times, text[:1])
    with pytest.raises(ContractViolation, match="text_encoder: input_ids is float32"):
        parts["text_encoder"](torch.zeros(1, 32), torch.ones(1, 32).long())
    with pytest.raises(ContractViolation, match=r"vae: latents .*z_dim = 8"):
        parts["vae"].prepare(torch.zeros(1, 16, 3, 6, 6))


def test_latents_of_another_form_than_the_request_are_refused() -> None:
    model = embedded_model()
    kernel, request = model.kernels["decode"], generation(kind=RequestKind.CONVERSION)
    for latents in (
        torch.zeros(8, 3, 6, 6),
        torch.zeros(1, 16, 3, 6, 6),
        torch.zeros(1, 8, 3, 6, 6, dtype=torch.float64),
        torch.zeros(1, 8, 3, 6, 8),
    ):
        with pytest.raises(InvalidField) as caught:
            run_loop(kernel, request, {"latents": latents}, model)
        assert caught.value.field == "latents"


def test_features_without_the_branch_that_guidance_needs_are_refused() -> None:
    model = embedded_model()
    alone = generation(guidance_scale=1.0)
    features = run_loop(model.kernels["encode"], alone, {}, model).values
    with pytest.raises(InvalidField) as caught:
        run_loop(model.kernels["denoise"], generation(guidance_scale=2.0), features, model)
    assert caught.value.field == "text_features"


def test_scores_say_which_prompt_a_video_was_made_of() -> None:
    model = embedded_model()
    right = generation(prompt="a red three moving left", steps=10, kind=RequestKind.GENERATION)
    features = run_loop(model.kernels["encode"], right, {}, model).values
    latents = run_loop(model.kernels["denoise"], right, features, model).values

    def score(prompt: str) -> float:
        request = generation(prompt=prompt, kind=RequestKind.SCORING)
        text = run_loop(model.kernels["encode"], request, {}, model).values
        found = run_loop(model.kernels["latent_score"], request, {**text, **latents}, model)
        assert found.values["scores"] == found.scores
        return found.scores["velocity_mse"]

    assert score("a red three moving left") < score("a blue nine moving up")
    assert score("a red three moving left") == score("a red three moving left")


def test_a_loop_that_the_family_does_not_have_is_named() -> None:
    card = embedded_entry().card
    more = {**card.loops, "sing": replace(card.loops["decode"], loop_id="sing")}
    with pytest.raises(ContractViolation, match="does not have what moving-digits declares: sing"):
        load_instance_parts(replace(card, loops=more), embedded_folder())
