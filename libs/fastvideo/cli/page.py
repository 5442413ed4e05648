"""`fastvideo page`: where the page is that shows requests, their timelines and replays."""

import json
import os
import webbrowser
from typing import Annotated
from urllib.parse import quote

import typer

from fastvideo.cli.options import AsJson
from fastvideo.cli.stack import DataOption


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("page")(page)


def page(
    request_id: Annotated[
        str, typer.Argument(metavar="REQUEST", help="Of this request; without it, the list.")
    ] = "",
    open_it: Annotated[bool, typer.Option("--open", help="Open it in a browser, too.")] = False,
    http: Annotated[
        str,
        typer.Option(
            "--http", metavar="URL", help="The gateway's HTTP address; default: the local stack's."
        ),
    ] = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Print the address of the page: requests, what happened to them, and replays."""
    from fastvideo.cli.config import load_config
    from fastvideo.cli.connection import find_gateway_http

    address = find_gateway_http(load_config(os.environ), http, data)
    url = f"{address}/requests/{quote(request_id, safe='')}" if request_id else f"{address}/"
    typer.echo(json.dumps({"url": url}) if as_json else url)
    if open_it:
        webbrowser.open(url)
