"""The file that an in-process engine is started from: a deployment's deployment.yaml."""

from dataclasses import replace
from pathlib import Path

from fastvideo.deployment.authoring import DeploymentDocument
from fastvideo.errors import InvalidField, NotFound
from fastvideo.model.documents import InvalidDocument, parse, read_document


def read_deployment(path: Path) -> DeploymentDocument:
    """Read a deployment file; its folder of checkpoints is made relative to it.

    Raises NotFound when there is no such file, InvalidDocument for a key that is unknown or
    wrong.
    """
    if not path.is_file():
        raise NotFound(f"no deployment file {path}", subject=str(path))
    try:
        deployment = parse(DeploymentDocument, read_document(path), path.name)
    except InvalidField as error:
        # A knob of the scheduling policy checks itself.
        raise InvalidDocument(path.name, {f"scheduling.{error.field}": error.message}) from error
    if not deployment.checkpoints:
        return deployment
    return replace(deployment, checkpoints=str(path.parent / deployment.checkpoints))
