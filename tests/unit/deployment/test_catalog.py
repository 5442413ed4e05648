import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fastvideo.deployment.catalog import FAMILIES, Catalog
from fastvideo.deployment.validate import main
from fastvideo.errors import CheckpointError, InvalidField, NotFound
from fastvideo.model.documents import InvalidDocument
from fastvideo.model.manifest import main as write_manifest
from fastvideo.program.specs import NodeKind
from fastvideo.requests.types import RequestKind

BASE = "wan2.1-t2v-1.3b"


def test_the_catalog_knows_every_card_with_digest_and_programs() -> None:
    catalog = Catalog.load()
    assert catalog.model_ids == ("moving-digits", BASE)
    entry = catalog.get("moving-digits")
    assert len(entry.card_digest) == 64
    assert entry.checkpoint_path is not None
    assert entry.unavailable_reason == ""
    assert "text_to_video" in entry.programs


def test_families_of_other_packages_stand_beside_those_that_ship() -> None:
    catalog = Catalog.load(packages=["tests.families.pocket"])
    assert catalog.model_ids == ("moving-digits", "pocket", BASE)
    assert catalog.get("pocket").program_for(RequestKind.GENERATION).program_id == "tell"
    with pytest.raises(NotFound, match="no package") as caught:
        Catalog.load(packages=["tests.families.nowhere"])
    assert caught.value.reason == "FAMILY_NOT_FOUND"
    with pytest.raises(InvalidDocument, match="there twice"):
        Catalog.load(packages=["tests.families.pocket"] * 2)


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    for call in (
        lambda: Catalog.load().get("movie"),
        lambda: Catalog.load(["movie"]),
    ):
        with pytest.raises(NotFound, match=f"moving-digits, {BASE}") as caught:
            call()
        assert caught.value.reason == "MODEL_NOT_FOUND"


def test_a_deployment_serves_the_models_that_it_names() -> None:
    assert Catalog.load([BASE]).model_ids == (BASE,)


@pytest.mark.row("MDL-01")
def test_a_missing_checkpoint_says_what_to_put_where(tmp_path: Path) -> None:
    entry = Catalog.load([BASE], tmp_path).get(BASE)
    assert entry.checkpoint_path is None
    for part in (
        str(tmp_path / BASE),
        "diffusers format",
        "tokenizer/",
        "text_encoder/ (transformers.UMT5EncoderModel)",
        "transformer/ (diffusers.WanTransformer3DModel)",
        "vae/ (diffusers.AutoencoderKLWan)",
        "scheduler/",
        "safetensors",
        "manifest.json",
    ):
        assert part in entry.unavailable_reason
    with pytest.raises(CheckpointError, match=BASE):
        entry.require_checkpoint()


def test_an_incomplete_checkpoint_says_what_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / BASE
    (folder / "transformer").mkdir(parents=True)
    reason = Catalog.load([BASE], tmp_path).get(BASE).unavailable_reason
    assert "lacks tokenizer, text_encoder, vae, scheduler" in reason


def test_a_checkpoint_of_the_user_goes_before_the_shipped_one(tmp_path: Path) -> None:
    shipped = Catalog.load().get("moving-digits").require_checkpoint()
    mine = tmp_path / "moving-digits"
    shutil.copytree(shipped, mine)
    (mine / "manifest.json").unlink()
    reason = Catalog.load(None, tmp_path).get("moving-digits").unavailable_reason
    assert f"python -m fastvideo.model.manifest {mine}" in reason
    assert write_manifest([str(mine)]) == 0
    assert Catalog.load(None, tmp_path).get("moving-digits").require_checkpoint() == mine


@pytest.mark.parametrize("kind", list(RequestKind))
def test_each_kind_has_a_default_program(kind: RequestKind) -> None:
    program = Catalog.load().get("moving-digits").program_for(kind, "")
    assert program.request_kind is kind
    assert program.is_default


def test_a_program_is_found_by_name_and_only_for_its_kind() -> None:
    entry = Catalog.load().get("moving-digits")
    named = entry.program_for(RequestKind.CONVERSION, "decode_latents")
    assert named.nodes[0].kind is NodeKind.COMPONENT
    with pytest.raises(InvalidField) as caught:
        entry.program_for(RequestKind.GENERATION, "decode_latents")
    assert caught.value.field == "program_id"
    assert caught.value.allowed == "image_to_video or text_to_video"


def test_a_model_has_the_programs_that_its_card_is_capable_of() -> None:
    catalog = Catalog.load()
    assert "image_to_video" in catalog.get("moving-digits").programs
    assert "image_to_video" not in catalog.get(BASE).programs
    with pytest.raises(InvalidField) as caught:
        catalog.get(BASE).program_for(RequestKind.GENERATION, "image_to_video")
    assert caught.value.field == "program_id"
    assert caught.value.allowed == "text_to_video"


@pytest.mark.row("MOD-04")
def test_one_command_validates_all_cards_and_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert "moving-digits: card" in shown
    assert f"{BASE}: card" in shown

    (tmp_path / "wan").mkdir()
    shutil.copytree(FAMILIES / "wan" / "cards", tmp_path / "wan" / "cards")
    shutil.copy(FAMILIES / "wan" / "state_schemas.yaml", tmp_path / "wan")
    text = (FAMILIES / "wan" / "programs.yaml").read_text()
    (tmp_path / "wan" / "programs.yaml").write_text(text.replace("loop_id: denoise", "loop_id: d"))
    with pytest.raises(InvalidDocument, match="'d' is no loop of moving-digits"):
        Catalog.load(None, None, tmp_path)
    assert main(["--families", str(tmp_path)]) == 1
    assert "programs.yaml" in capsys.readouterr().err


def test_the_catalog_imports_neither_torch_nor_the_families_code() -> None:
    code = (
        "import sys; from fastvideo.deployment.catalog import Catalog; Catalog.load();"
        "sys.exit(any(m.split('.')[0] in ('torch', 'diffusers', 'transformers')"
        " or m.startswith('fastvideo.models') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.row("VAL-01")
def test_a_loop_whose_state_nobody_declares_fails_validation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    family = tmp_path / "wan"
    shutil.copytree(FAMILIES / "wan" / "cards", family / "cards")
    shutil.copy(FAMILIES / "wan" / "programs.yaml", family)
    text = (FAMILIES / "wan" / "state_schemas.yaml").read_text()
    file = family / "state_schemas.yaml"
    file.write_text(text.replace("wan.decode.v1:", "wan.decode.v2:"))
    assert main(["--families", str(tmp_path)]) == 1
    assert "loops.decode.state_schema: 'wan.decode.v1'" in capsys.readouterr().err
    file.write_text(text.replace("dtype: uint8", "dtype: ''"))
    with pytest.raises(InvalidDocument) as caught:
        Catalog.load(None, None, tmp_path)
    assert "wan.decode.v1.state.3.dtype" in caught.value.problems
