"""`fastvideo models`."""

import typer

from fastvideo.cli.options import AsJson, Gateway, gateway_target
from fastvideo.cli.stack import DataOption


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("models")(models)


def models(gateway: Gateway = "", data: DataOption = None, as_json: AsJson = False) -> None:
    """List the models and whether a worker serves them now."""
    from fastvideo.cli.inspection import show_models

    show_models(gateway_target(gateway, data), as_json=as_json)
