"""`fastvideo log`: what is in the event log, and whether it is as it must be.

Each command takes `--gateway`, `--data` and `--json` like all others, and imports what it needs
when it runs.
"""

import os
from typing import TYPE_CHECKING

import typer

from fastvideo.cli import behaviors, log_commands, log_retention, rebuild
from fastvideo.cli.log_restored import restored
from fastvideo.cli.stack import DataOption

if TYPE_CHECKING:
    from fastvideo.cli.connection import Target


def register(parent: typer.Typer) -> None:
    """Add the commands to an application."""
    app = typer.Typer(
        help="The event log: read it, follow it, export it, check it.", no_args_is_help=True
    )
    log_commands.register(app)
    app.command("restored")(restored)
    rebuild.register(app)
    log_retention.register(app)
    behaviors.register(app)
    parent.add_typer(app, name="log")


def gateway_target(gateway: str, data: DataOption) -> "Target":
    """The gateway that a command of this group talks to."""
    from fastvideo.cli.config import load_config
    from fastvideo.cli.connection import find_gateway

    return find_gateway(load_config(os.environ), gateway, data)
