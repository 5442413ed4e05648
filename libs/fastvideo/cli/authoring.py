"""`fastvideo validate`, `describe` and `schemas`: the files of a deployment."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fastvideo.cli.options import AsJson, Gateway, check_folder, gateway_target
from fastvideo.cli.stack import DataOption

Families = Annotated[
    list[str] | None,
    typer.Option("--family", metavar="PACKAGE", help="A family of your own, by import name."),
]
Checkpoints = Annotated[
    Path | None,
    typer.Option(
        "--checkpoints", metavar="DIR", help="Folder of checkpoints, one subfolder a model."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command("validate")(validate)
    app.command("describe")(describe)
    app.command("schemas")(schemas)


def validate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with the YAML files.")],
    checkpoints: Checkpoints = None,
    family: Families = None,
    as_json: AsJson = False,
) -> None:
    """Check model, loops, parallel, programs, deployment and training YAML, and that they fit.

    Every fault is told with its file and key. No server is needed.
    """
    from fastvideo.cli.cards import told_project
    from fastvideo.cli.failures import counted, tell
    from fastvideo.deployment.project import InvalidProject, read_project

    try:
        project = read_project(folder, checkpoints=checkpoints, families=family or ())
    except InvalidProject as error:
        if as_json:
            faults = [
                {"file": one.file, "key": one.key, "fault": one.fault} for one in error.faults
            ]
            typer.echo(json.dumps({"valid": False, "faults": faults}, indent=2))
        else:
            for fault in error.faults:
                tell(str(fault))
            tell(f"{counted(len(error.faults), 'fault')} in {folder}")
        raise typer.Exit(1) from None
    if as_json:
        models = sorted(project.cards)
        typer.echo(json.dumps({"valid": True, "models": models, "faults": []}, indent=2))
    else:
        told_project(project)


def describe(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|DIR|HOST:PORT",
            help="A model's id, a folder to validate, or a gateway; else the running stack.",
        ),
    ] = "",
    checkpoints: Checkpoints = None,
    family: Families = None,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a model's card, what a folder deploys, or the deployment cards of a running stack."""
    from fastvideo.cli.cards import card_record, told_card, told_project
    from fastvideo.deployment.catalog import Catalog
    from fastvideo.deployment.project import project_record, read_project
    from fastvideo.deployment.servables import find_servable

    if not subject or ":" in subject:
        _describe_running(subject or gateway, data, as_json=as_json)
        return
    check_folder(subject)
    if Path(subject).is_dir():
        project = read_project(Path(subject), checkpoints=checkpoints, families=family or ())
        if as_json:
            typer.echo(json.dumps(project_record(project), indent=2))
        else:
            told_project(project)
        return
    catalog = Catalog.load(None, checkpoints, packages=tuple(family or ()))
    entry, program = find_servable(catalog, subject)
    if program is not None:
        entry = replace(entry, programs={program.program_id: program})
    if as_json:
        typer.echo(json.dumps(card_record(entry), indent=2))
    else:
        told_card(entry)


def _describe_running(gateway: str, data: Path | None, *, as_json: bool) -> None:
    from fastvideo.cli.inspection import show_deployment

    show_deployment(gateway_target(gateway, data), as_json=as_json)


def schemas(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write them.")],
) -> None:
    """Write the JSON Schemas of the six files, for editors that check YAML while you type."""
    from fastvideo.deployment.schemas import authoring_schemas

    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in authoring_schemas().items():
        path = folder / f"{name}.schema.json"
        path.write_text(json.dumps(schema, indent=2, sort_keys=True) + "\n")
        typer.echo(str(path))
