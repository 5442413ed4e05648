"""`fastvideo serve`: what a folder's files say, or some models, served from this terminal."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastvideo.cli.authoring import Checkpoints, Families
from fastvideo.cli.options import check_folder
from fastvideo.cli.stack import DataOption

if TYPE_CHECKING:
    from fastvideo.deployment.serving import ServedStack
    from fastvideo.local.folder import DataFolder
    from fastvideo.scheduling.policy import SchedulingPolicy


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("serve")(serve)


def serve(
    what: Annotated[
        list[str],
        typer.Argument(metavar="DIR|MODEL", help="A folder with the YAML files, or models."),
    ],
    checkpoints: Checkpoints = None,
    family: Families = None,
    data: DataOption = None,
    http: Annotated[int | None, typer.Option(help="Port of the gateway's HTTP.")] = None,
    grpc: Annotated[int | None, typer.Option(help="Port of the gateway's gRPC.")] = None,
) -> None:
    """Serve until Ctrl-C what deployment.yaml and the files beside it say, or models by their ids.

    Everything is validated before anything starts: exit code 1 with each fault, its file and key.
    `fastvideo up` is the same stack as the environment configures it.
    """
    from fastvideo.cli.stack import serve_here
    from fastvideo.local.config import StackOptions, options_for

    served = _asked(what, checkpoints, tuple(family or ()))
    folder = options_for(data, os.environ).folder
    options = StackOptions(
        folder.root,
        http,
        grpc,
        workers=len(served.workers),
        schedulers=served.schedulers,
        policy=_policy_file(folder, served.policy),
        keys=served.keys,
        worker_models=served.workers,
    )
    serve_here(options, _environment(os.environ, served))


def _asked(what: list[str], checkpoints: Path | None, families: tuple[str, ...]) -> "ServedStack":
    """What is to run. An InvalidProject is told fault by fault."""
    from fastvideo.cli.failures import counted, tell
    from fastvideo.deployment.project import TRAINING, InvalidProject, read_project
    from fastvideo.deployment.serving import stack_of_models, stack_of_project

    if len(what) == 1:
        check_folder(what[0])
    if len(what) != 1 or not Path(what[0]).is_dir():
        return stack_of_models(what, checkpoints=checkpoints, families=families)
    folder = Path(what[0])
    try:
        project = read_project(folder, checkpoints=checkpoints, families=families)
        served = stack_of_project(project, checkpoints=checkpoints, families=families)
    except InvalidProject as error:
        for fault in error.faults:
            tell(str(fault))
        tell(f"{counted(len(error.faults), 'fault')} in {folder}; nothing was started")
        raise typer.Exit(1) from None
    if project.training is not None:
        tell(f"{TRAINING} is sound; serving takes nothing from it")
    return served


def _policy_file(folder: "DataFolder", policy: "SchedulingPolicy | None") -> Path | None:
    """The scheduling policy where the schedulers read it."""
    from fastvideo.deployment.scheduling_policy import policy_document
    from fastvideo.local.lock import holder

    if policy is None:
        return None
    folder.prepare()
    path = folder.root / "served-policy.json"
    # A stack that runs here goes on with its own; this one will be refused.
    if holder(folder) is None:
        path.write_text(policy_document(policy))
    return path


def _environment(given: Mapping[str, str], served: "ServedStack") -> dict[str, str]:
    """The environment of the services: what the files say wins over what was there."""
    environment = {**given, "FASTVIDEO_MODELS": ",".join(served.models)}
    if served.families:
        environment["FASTVIDEO_FAMILIES"] = ",".join(served.families)
    if served.checkpoints is not None:
        environment["FASTVIDEO_CHECKPOINTS"] = str(served.checkpoints.absolute())
    if served.threads:
        environment["FASTVIDEO_THREADS"] = str(served.threads)
    if served.memory_bytes:
        environment["FASTVIDEO_MEMORY_BYTES"] = str(served.memory_bytes)
    return environment
