"""A traced request of a running stack, replayed with one changed weight: its layer is named."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from fastvideo.client import AsyncClient
from fastvideo.deployment.catalog import Catalog
from fastvideo.model.manifest import build_manifest, write_manifest
from tests.e2e.replays import replays_of
from tests.e2e.stack import Stack, poll

LAYER = "blocks.0.ffn.net.2"
STEPS = 3


@pytest.fixture(scope="module")
def traced(stack: Stack) -> Any:
    """A request that was traced in detail, beside one that was not."""
    with stack.start("generate", "a blue two", "--steps", "6", "--seed", "2", "--json") as other:
        made = stack.generate(
            "a red three moving left", "--steps", str(STEPS), "--seed", "1", "--trace", "detail"
        )
        other.communicate(timeout=120)
    assert other.returncode == 0
    return made


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model's checkpoint, one element of one layer changed."""
    folder = tmp_path_factory.mktemp("checkpoints")
    entry = Catalog.load(["moving-digits"]).get("moving-digits")
    copy = folder / entry.card.checkpoint
    shutil.copytree(entry.require_checkpoint(), copy)
    path = copy / "transformer" / "diffusion_pytorch_model.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    tensors[f"{LAYER}.weight"][7, 11] += 0.125
    save_file(tensors, path, metadata=metadata)
    write_manifest(copy, build_manifest(copy))
    return folder


async def test_the_log_has_the_components_of_every_step(stack: Stack, traced: Any) -> None:
    async with AsyncClient(stack.gateway) as client:
        run = await client.logged_run(traced["id"])
    denoised = [step.components for step in run.steps if step.node_id == "denoise"]
    assert len(denoised) == STEPS
    for components in denoised:
        assert components is not None
        names = [trace.component for trace in components.components]
        assert names == ["transformer", "guidance", "sampler"]
        assert components.layers > 100


def test_every_layer_is_the_same_again(stack: Stack, traced: Any) -> None:
    told = stack.run("replay", "execution", traced["id"], "--detail", "--json")
    assert told.code == 0, told.out + told.err
    assert told.json["equal"]
    layers = [one for one in told.json["comparisons"] if one["subject"].endswith(" layers")]
    assert len([one for one in layers if one["node_id"] == "denoise"]) == STEPS
    assert told.json["promise"]["kind"] == "bits"


def test_one_changed_weight_is_found_by_its_step_component_and_layer(
    stack: Stack, traced: Any, changed: Path
) -> None:
    where = ("--here", "--checkpoints", str(changed), "--artifacts", stack.address("artifacts"))
    told = stack.run("replay", "execution", traced["id"], *where, "--json")
    assert told.code == 1, told.out + told.err
    first = told.json["first_divergence"]
    assert first["subject"] == f"denoise 1/{STEPS}"
    assert (first["step"], first["component"], first["layer"]) == (1, "transformer", LAYER)
    assert "weights_version" in told.json["promise"]["differences"]
    shown = stack.run("replay", "execution", traced["id"], *where)
    assert shown.code == 1
    assert f"denoise 1/{STEPS}, transformer, {LAYER}" in shown.out


def test_a_replay_ends_with_whoever_asked_for_it(stack: Stack, traced: Any) -> None:
    worker = stack.pid("worker-1")
    assert replays_of(worker) == []
    with stack.start("replay", "execution", traced["id"]) as asking:
        [pid] = poll("a replay runs", lambda: replays_of(worker) or None, 60.0)
        asking.kill()
        asking.communicate(timeout=60)
    poll("the replay is gone", lambda: True if pid not in replays_of(worker) else None, 60.0)
    # The worker serves on, replays too.
    again = stack.run("replay", "execution", traced["id"], "--json")
    assert again.code == 0, again.out + again.err
