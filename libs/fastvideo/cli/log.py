"""`fastvideo log`: what is in the event log, and whether it is as it must be.

Each command takes `--gateway`, `--data` and `--json` like all others, and imports what it needs
when it runs.
"""

import typer

from fastvideo.cli import behaviors, log_commands, log_retention, rebuild
from fastvideo.cli.log_restored import restored


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
