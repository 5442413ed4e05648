"""The file that an in-process engine is started from."""

from dataclasses import dataclass, replace
from pathlib import Path

from fastvideo.errors import NotFound
from fastvideo.model.documents import parse, read_document


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDeployment:
    """Which models an engine serves, and from where."""

    models: tuple[str, ...] = ("moving-digits",)
    # Folder of the user's checkpoints, relative to the file; one subfolder a model.
    checkpoints: str = ""
    # Threads of a forward; 0 is found by a short probe.
    threads: int = 0
    # Memory that the engine may use, bytes; 0 is the machine's.
    memory_bytes: int = 0

    @property
    def checkpoints_path(self) -> Path | None:
        """The folder of the checkpoints, if one is named."""
        return Path(self.checkpoints) if self.checkpoints else None


def read_deployment(path: Path) -> EngineDeployment:
    """Read a deployment file.

    Raises NotFound when there is no such file, InvalidDocument for a key that is unknown or
    wrong.
    """
    if not path.is_file():
        raise NotFound(f"no deployment file {path}", subject=str(path))
    deployment = parse(EngineDeployment, read_document(path), path.name)
    if not deployment.checkpoints:
        return deployment
    return replace(deployment, checkpoints=str(path.parent / deployment.checkpoints))
