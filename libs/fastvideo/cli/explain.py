"""`fastvideo explain`: why a request took the time that it took."""

from pathlib import Path
from typing import Annotated

import typer

from fastvideo.cli.options import AsJson, Gateway, gateway_target
from fastvideo.cli.stack import DataOption


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("explain")(explain)


def explain(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST", help="The request's id.")],
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Draw it as a waterfall.")
    ] = None,
    units: Annotated[bool, typer.Option("--units", help="Show every unit.")] = False,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Explain where a request's time went: what it waited for, and with whom it ran.

    Works while the request runs, too: then it says what the request waits for now.
    """
    from fastvideo.cli.explanation import explain_request

    target = gateway_target(gateway, data)
    explain_request(target, request_id, png=png, units=units, as_json=as_json)
