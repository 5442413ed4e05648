"""Checkpoint manifests: what a checkpoint must be, file by file and tensor by tensor.

`python -m fastvideo.model.manifest FOLDER` writes FOLDER/manifest.json for a folder in
diffusers format; loading a model verifies its folder against it.
"""

import argparse
import dataclasses
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from fastvideo.errors import CheckpointError
from fastvideo.model.canonical import canonical_digest
from fastvideo.model.documents import InvalidDocument, parse
from fastvideo.model.safetensors_header import read_tensor_table
from fastvideo.model.specs import CheckpointFile, CheckpointManifest, TensorEntry, TensorTable

MANIFEST_NAME: Final = "manifest.json"
CONVERSION_VERSION: Final = "upstream"
"""The keys are the upstream classes' own; nothing was converted."""

WEIGHTS_SUFFIX: Final = ".safetensors"
KEPT_SUFFIXES: Final = frozenset({WEIGHTS_SUFFIX, ".jinja", ".json", ".model", ".txt"})
"""Files of these kinds are read when a model is loaded, and so are what a manifest lists."""

_READ_BYTES: Final = 1 << 22
_SHOWN_PROBLEMS_MAX: Final = 10


def build_manifest(
    folder: Path, *, source: str = "", revision: str = "", parity_tests: Sequence[str] = ()
) -> CheckpointManifest:
    """The manifest of a folder in diffusers format, from its bytes.

    Raises CheckpointError when the folder holds no weights or a damaged file.
    """
    paths = list(_checkpoint_paths(folder))
    tables = _tensor_tables(folder, paths)
    if not tables:
        raise CheckpointError(f"{folder} holds no *{WEIGHTS_SUFFIX} file", subject=str(folder))
    weights = [path for path in paths if path.suffix == WEIGHTS_SUFFIX]
    return CheckpointManifest(
        source=source,
        revision=revision,
        files=tuple(_file_entry(folder, path) for path in paths),
        shape_map=tables,
        dtype_policy={name: _stored_dtypes(table) for name, table in tables.items()},
        sharding="single_file" if len(weights) == len(tables) else "indexed_files",
        checksum_policy="sha256",
        conversion_version=CONVERSION_VERSION,
        parity_tests=tuple(parity_tests),
    )


def manifest_digest(manifest: CheckpointManifest) -> str:
    """SHA-256 of the manifest's canonical encoding; it names the weights."""
    return canonical_digest(manifest)


def read_manifest(folder: Path) -> CheckpointManifest:
    """The manifest beside a checkpoint.

    Raises CheckpointError when it is absent or is no manifest.
    """
    path = folder / MANIFEST_NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read; write it with `python -m fastvideo.model.manifest {folder}`",
            subject=str(path),
        ) from error
    except ValueError as error:
        raise CheckpointError(f"{path} is no JSON: {error}", subject=str(path)) from error
    try:
        return parse(CheckpointManifest, data, str(path))
    except InvalidDocument as error:
        raise CheckpointError(f"{path} is no manifest: {error}", subject=str(path)) from error


def write_manifest(folder: Path, manifest: CheckpointManifest) -> Path:
    """Write the manifest beside the checkpoint and say where."""
    path = folder / MANIFEST_NAME
    text = json.dumps(dataclasses.asdict(manifest), indent=1, ensure_ascii=True)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def verify_checkpoint(folder: Path, manifest: CheckpointManifest) -> None:
    """Check every file's size and SHA-256 and every tensor's key, shape and dtype.

    Raises CheckpointError naming each file and key that is missing, damaged, of another shape,
    or not in the manifest.
    """
    problems = list(_file_problems(folder, manifest))
    if not problems:
        problems = list(_tensor_problems(folder, manifest))
    if problems:
        more = len(problems) - _SHOWN_PROBLEMS_MAX
        shown = problems[:_SHOWN_PROBLEMS_MAX] + ([f"and {more} more"] if more > 0 else [])
        raise CheckpointError(f"{folder}: {'; '.join(shown)}", subject=problems[0].split(":")[0])


def _checkpoint_paths(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden and path.suffix in KEPT_SUFFIXES:
            if path == folder / MANIFEST_NAME:
                continue
            yield path


def _component_of(folder: Path, path: Path) -> str:
    parts = path.relative_to(folder).parts
    return parts[0] if len(parts) > 1 else ""


def _file_entry(folder: Path, path: Path) -> CheckpointFile:
    return CheckpointFile(
        path=path.relative_to(folder).as_posix(),
        component_id=_component_of(folder, path),
        size_bytes=path.stat().st_size,
        sha256=_sha256(path),
    )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _tensor_tables(folder: Path, paths: Sequence[Path]) -> dict[str, TensorTable]:
    entries: dict[str, list[TensorEntry]] = {}
    for path in paths:
        if path.suffix == WEIGHTS_SUFFIX:
            entries.setdefault(_component_of(folder, path), []).extend(read_tensor_table(path))
    return {
        name: TensorTable(tensors=tuple(sorted(tensors, key=lambda tensor: tensor.key)))
        for name, tensors in entries.items()
    }


def _stored_dtypes(table: TensorTable) -> str:
    return "+".join(sorted({tensor.dtype for tensor in table.tensors}))


def _file_problems(folder: Path, manifest: CheckpointManifest) -> Iterator[str]:
    expected = {entry.path for entry in manifest.files}
    for entry in manifest.files:
        path = folder / entry.path
        if not path.is_file():
            yield f"{entry.path}: is missing"
        elif path.stat().st_size != entry.size_bytes:
            yield f"{entry.path}: is {path.stat().st_size} bytes, not {entry.size_bytes}"
        elif _sha256(path) != entry.sha256:
            yield f"{entry.path}: is damaged, its SHA-256 is not the manifest's"
    for path in _checkpoint_paths(folder):
        name = path.relative_to(folder).as_posix()
        if path.suffix == WEIGHTS_SUFFIX and name not in expected:
            yield f"{name}: is not in the manifest"


def _tensor_problems(folder: Path, manifest: CheckpointManifest) -> Iterator[str]:
    tables = _tensor_tables(folder, [folder / entry.path for entry in manifest.files])
    for component in sorted(set(tables) | set(manifest.shape_map)):
        found = _by_key(tables.get(component))
        wanted = _by_key(manifest.shape_map.get(component))
        for key in sorted(set(found) | set(wanted)):
            fault = _tensor_fault(found.get(key), wanted.get(key))
            if fault:
                yield f"{component}: tensor {key!r} {fault}"


def _by_key(table: TensorTable | None) -> dict[str, TensorEntry]:
    return {} if table is None else {tensor.key: tensor for tensor in table.tensors}


def _tensor_fault(found: TensorEntry | None, wanted: TensorEntry | None) -> str:
    if wanted is None:
        return "is not in the manifest"
    if found is None:
        return "is missing"
    if found.shape != wanted.shape:
        return f"has shape {list(found.shape)}, not {list(wanted.shape)}"
    if found.dtype != wanted.dtype:
        return f"is {found.dtype}, not {wanted.dtype}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the manifest of a checkpoint folder."""
    parser = argparse.ArgumentParser(prog="python -m fastvideo.model.manifest", description=__doc__)
    parser.add_argument("folder", type=Path, help="a checkpoint in diffusers format")
    parser.add_argument("--source", default="", help="where the checkpoint comes from")
    parser.add_argument("--revision", default="", help="the source's revision")
    parser.add_argument("--parity", action="append", default=[], help="a parity test it must pass")
    options = parser.parse_args(arguments)
    try:
        manifest = build_manifest(
            options.folder,
            source=options.source,
            revision=options.revision,
            parity_tests=options.parity,
        )
    except CheckpointError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    path = write_manifest(options.folder, manifest)
    sys.stdout.write(f"{path}: {len(manifest.files)} files, {manifest_digest(manifest)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
