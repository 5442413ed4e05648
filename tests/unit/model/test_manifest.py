import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import CheckpointError
from fastvideo.model.manifest import (
    build_manifest,
    main,
    manifest_digest,
    read_manifest,
    verify_checkpoint,
    write_manifest,
)
from fastvideo.model.safetensors_header import read_tensor_table
from fastvideo.model.specs import CheckpointManifest, TensorEntry


def safetensors(tensors: dict[str, tuple[str, list[int], int]]) -> bytes:
    """A file of zeros: key to dtype, shape and bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for key, (dtype, shape, size) in tensors.items():
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(offset)


WEIGHTS = {"w": ("BF16", [2, 3], 12), "b": ("F32", [2], 8)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vae").mkdir()
    (tmp_path / "model_index.json").write_text("{}")
    (tmp_path / "vae" / "config.json").write_text('{"z_dim": 8}')
    (tmp_path / "vae" / "diffusion_pytorch_model.safetensors").write_bytes(safetensors(WEIGHTS))
    (tmp_path / "README.md").write_text("not a part")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "x.json").write_text("not a part")
    return tmp_path


def weights(folder: Path) -> Path:
    return folder / "vae" / "diffusion_pytorch_model.safetensors"


@pytest.mark.row("CKP-01")
def test_a_manifest_names_files_owners_tensors_dtypes_and_versions(folder: Path) -> None:
    manifest = build_manifest(folder, source="here", revision="7", parity_tests=["vae"])
    assert [(file.path, file.component_id) for file in manifest.files] == [
        ("model_index.json", ""),
        ("vae/config.json", "vae"),
        ("vae/diffusion_pytorch_model.safetensors", "vae"),
    ]
    assert all(len(file.sha256) == 64 for file in manifest.files)
    assert manifest.files[2].size_bytes == weights(folder).stat().st_size
    assert manifest.shape_map["vae"].tensors == (
        TensorEntry(key="b", shape=(2,), dtype="float32"),
        TensorEntry(key="w", shape=(2, 3), dtype="bfloat16"),
    )
    assert manifest.dtype_policy == {"vae": "bfloat16+float32"}
    assert (manifest.source, manifest.revision) == ("here", "7")
    assert manifest.sharding == "single_file"
    assert manifest.checksum_policy == "sha256"
    assert manifest.key_map == {}
    assert manifest.adapters == ()
    assert manifest.conversion_version == "upstream"
    assert manifest.parity_tests == ("vae",)


def test_a_manifest_is_read_as_it_was_written(folder: Path) -> None:
    manifest = build_manifest(folder)
    write_manifest(folder, manifest)
    assert read_manifest(folder) == manifest
    assert build_manifest(folder) == manifest
    verify_checkpoint(folder, manifest)


def test_the_digest_names_the_weights(folder: Path) -> None:
    before = manifest_digest(build_manifest(folder))
    data = bytearray(weights(folder).read_bytes())
    data[-1] = 1
    weights(folder).write_bytes(bytes(data))
    assert manifest_digest(build_manifest(folder)) != before


def flip_last_byte(folder: Path) -> None:
    data = bytearray(weights(folder).read_bytes())
    data[-1] ^= 1
    weights(folder).write_bytes(bytes(data))


def cut_short(folder: Path) -> None:
    weights(folder).write_bytes(weights(folder).read_bytes()[:-4])


def delete(folder: Path) -> None:
    weights(folder).unlink()


def delete_config(folder: Path) -> None:
    (folder / "vae" / "config.json").unlink()


def add_weights(folder: Path) -> None:
    (folder / "vae" / "more.safetensors").write_bytes(safetensors({"z": ("F32", [1], 4)}))


@pytest.mark.row("CKP-03")
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip_last_byte, r"vae/diffusion_pytorch_model\.safetensors: is damaged"),
        (cut_short, r"vae/diffusion_pytorch_model\.safetensors: is \d+ bytes, not \d+"),
        (delete, r"vae/diffusion_pytorch_model\.safetensors: is missing"),
        (delete_config, r"vae/config\.json: is missing"),
        (add_weights, r"vae/more\.safetensors: is not in the manifest"),
    ],
)
def test_a_damaged_or_missing_file_is_refused_by_name(
    folder: Path, damage: Any, message: str
) -> None:
    manifest = build_manifest(folder)
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        verify_checkpoint(folder, manifest)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            {"w": ("BF16", [3, 2], 12), "b": ("F32", [2], 8)},
            r"'w' has shape \[3, 2\], not \[2, 3\]",
        ),
        ({"w": ("F16", [2, 3], 12), "b": ("F32", [2], 8)}, "'w' is float16, not bfloat16"),
        ({"w": ("BF16", [2, 3], 12)}, "'b' is missing"),
        (WEIGHTS | {"c": ("F32", [1], 4)}, "'c' is not in the manifest"),
    ],
)
def test_a_misshaped_key_is_refused_by_name(
    folder: Path, tensors: dict[str, Any], message: str
) -> None:
    wanted = build_manifest(folder)
    weights(folder).write_bytes(safetensors(tensors))
    found = build_manifest(folder)
    manifest: CheckpointManifest = replace(found, shape_map=wanted.shape_map)
    with pytest.raises(CheckpointError, match=message):
        verify_checkpoint(folder, manifest)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        struct.pack("<Q", 1 << 40),
        struct.pack("<Q", 4) + b"what",
        struct.pack("<Q", 2) + b"[]",
        safetensors({"w": ("F32", [2, 3], 12)}),
        safetensors({"w": ("F99", [1], 4)}),
        safetensors(WEIGHTS)[:-1],
    ],
)
def test_a_damaged_header_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"x\.safetensors"):
        read_tensor_table(path)


def test_a_folder_without_weights_or_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no"):
        build_manifest(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError, match="no JSON"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text('{"colour": "red"}')
    with pytest.raises(CheckpointError, match="colour"):
        read_manifest(tmp_path)


def test_the_command_writes_a_manifest(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "--source", "here"]) == 0
    assert read_manifest(folder).source == "here"
    assert manifest_digest(read_manifest(folder)) in capsys.readouterr().out
    assert main([str(folder / "vae" / "nothing")]) == 1


@pytest.mark.row("CKP-03")
def test_the_shipped_checkpoint_is_what_its_manifest_says() -> None:
    folder = Catalog.load().get("moving-digits").require_checkpoint()
    manifest = read_manifest(folder)
    verify_checkpoint(folder, manifest)
    assert set(manifest.shape_map) == {"text_encoder", "transformer", "vae"}
    rebuilt = build_manifest(
        folder,
        source=manifest.source,
        revision=manifest.revision,
        parity_tests=manifest.parity_tests,
    )
    assert rebuilt == manifest
