import json
from pathlib import Path

import pytest

from fastvideo.errors import CheckpointError
from fastvideo.model.component_config import (
    check_component_configs,
    check_loaded_config,
    config_sizes,
)
from fastvideo.model.specs import (
    CapabilityMatrix,
    ComponentKind,
    ComponentSpec,
    ModelSpec,
    ParallelismContract,
    ParityContract,
    PrecisionPolicy,
)

VAE = ComponentSpec(
    component_id="vae",
    kind=ComponentKind.VAE,
    subfolder="vae",
    config_schema={"z_dim": "8", "dims": "[1, 2]", "causal": "true", "patch": "null"},
    precision_policy=PrecisionPolicy(),
)
CARD = ModelSpec(
    model_id="m",
    components={"vae": VAE},
    capabilities=CapabilityMatrix(),
    parallelism=ParallelismContract(),
    parity=ParityContract(),
)
CONFIG = {"z_dim": 8, "dims": [1, 2], "causal": True, "patch": None, "more": 1}


def check(folder: Path, config: object) -> None:
    (folder / "vae").mkdir(exist_ok=True)
    (folder / "vae" / "config.json").write_text(json.dumps(config))
    check_component_configs(CARD, folder)


def test_a_configuration_that_fits_passes(tmp_path: Path) -> None:
    check(tmp_path, CONFIG)


@pytest.mark.row("MOD-07")
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**CONFIG, "z_dim": 16}, "vae: z_dim is 16; the card says 8"),
        ({**CONFIG, "causal": False}, "vae: causal is false; the card says true"),
        ({"z_dim": 16}, "vae: z_dim is 16; the card says 8"),
    ],
)
def test_another_configuration_names_the_component(
    tmp_path: Path, config: object, message: str
) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        check(tmp_path, config)
    assert caught.value.subject == "vae"


def test_what_a_file_leaves_out_is_checked_when_the_component_is_loaded(tmp_path: Path) -> None:
    check(tmp_path, {"z_dim": 8})
    check_loaded_config(VAE, {**CONFIG, "dims": (1, 2)})
    with pytest.raises(CheckpointError, match="vae: the configuration lacks dims"):
        check_loaded_config(VAE, {"z_dim": 8, "causal": True, "patch": None})
    with pytest.raises(CheckpointError, match=r"vae: dims is \[1\]; the card says \[1, 2\]"):
        check_loaded_config(VAE, {**CONFIG, "dims": (1,)})


def test_a_missing_or_damaged_configuration_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"vae/ has no config\.json"):
        check_component_configs(CARD, tmp_path)
    (tmp_path / "vae").mkdir()
    (tmp_path / "vae" / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="no JSON"):
        check_component_configs(CARD, tmp_path)


def test_sizes_are_the_whole_numbers_of_the_configuration() -> None:
    assert config_sizes(VAE) == {"z_dim": 8}
