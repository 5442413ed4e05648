"""`fastvideo log rebuild`: fill a projection anew from the log, compare, and let it take over."""

from typing import Annotated

import typer

from fastvideo.cli.failures import told_apart
from fastvideo.cli.options import AsJson, Gateway, gateway_target
from fastvideo.cli.stack import DataOption


def register(app: typer.Typer) -> None:
    """Add the command to a group."""
    app.command("rebuild")(rebuild)


def rebuild(
    projection: Annotated[
        str,
        typer.Argument(metavar="[PROJECTION]", help="Its name; without one, every projection."),
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Compare only; what is read stays as it is.")
    ] = False,
    swap: Annotated[
        bool, typer.Option("--swap", help="Let the new rows take over also when they differ.")
    ] = False,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild a projection from the log beside the one in use, which goes on meanwhile.

    Both are compared at the same positions. Equal rows take the place of those in use; rows that
    differ are told of, and do so only with --swap. Ends with 1 when rows differed, with 2 when it
    was not rebuilt.
    """
    from fastvideo.cli.rebuilding import rebuild_projections

    with told_apart(as_json=as_json):
        target = gateway_target(gateway, data)
        equal = rebuild_projections(
            target, projection, check=check, swap_different=swap, as_json=as_json
        )
    if not equal:
        raise typer.Exit(1)
