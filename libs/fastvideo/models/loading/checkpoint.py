"""A checkpoint folder whose every file was compared with its manifest, and a component's part."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from fastvideo.errors import CheckpointError, InvalidField
from fastvideo.model.manifest import (
    KEPT_SUFFIXES,
    WEIGHTS_SUFFIX,
    read_manifest,
    verify_checkpoint,
)
from fastvideo.model.specs import CheckpointManifest, ComponentSpec

_PICKLE_SUFFIXES: Final = frozenset({".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"})


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCheckpoint:
    """A folder in diffusers format that is what its manifest says; see `open_checkpoint`."""

    folder: Path
    manifest: CheckpointManifest


def open_checkpoint(folder: Path) -> VerifiedCheckpoint:
    """Verify a checkpoint, file by file and tensor by tensor.

    Raises CheckpointError naming each file and key that is missing, damaged or unknown.
    """
    manifest = read_manifest(folder)
    verify_checkpoint(folder, manifest)
    return VerifiedCheckpoint(folder=folder, manifest=manifest)


def component_folder(component: ComponentSpec, checkpoint: VerifiedCheckpoint) -> Path:
    """The component's folder, all of whose files that can be read are in the manifest.

    Raises InvalidField for a folder outside the checkpoint, and CheckpointError naming the
    component when it has no files, or files that the manifest does not have.
    """
    _check_subfolder(component)
    folder = checkpoint.folder / component.subfolder
    listed = {entry.path for entry in checkpoint.manifest.files}
    found = [
        path.relative_to(checkpoint.folder).as_posix()
        for path in (sorted(folder.iterdir()) if folder.is_dir() else [])
        if path.suffix in KEPT_SUFFIXES
    ]
    unlisted = [name for name in found if name not in listed]
    if unlisted:
        raise _fault(component, f"not in the manifest: {', '.join(unlisted)}")
    if not found:
        raise _fault(component, f"{component.subfolder}/ has no files")
    return folder


def require_weights(component: ComponentSpec, folder: Path) -> tuple[Path, ...]:
    """The component's safetensors files.

    Raises CheckpointError when there are none, naming pickle files that will not be read.
    """
    weights = tuple(sorted(folder.glob(f"*{WEIGHTS_SUFFIX}")))
    if not weights:
        pickles = [
            path.name for path in sorted(folder.iterdir()) if path.suffix in _PICKLE_SUFFIXES
        ]
        shown = f"; pickle files are not read: {', '.join(pickles)}" if pickles else ""
        raise _fault(component, f"{component.subfolder}/ has no *{WEIGHTS_SUFFIX} file{shown}")
    return weights


def _check_subfolder(component: ComponentSpec) -> None:
    # The manifest names components by the folder they are in, one level deep.
    parts = PurePosixPath(component.subfolder).parts
    if len(parts) != 1 or parts[0] in ("..", "/"):
        raise InvalidField(
            f"components.{component.component_id}.subfolder",
            component.subfolder,
            "the name of a folder of the checkpoint",
        )


def _fault(component: ComponentSpec, what: str) -> CheckpointError:
    return CheckpointError(f"{component.component_id}: {what}", subject=component.component_id)
