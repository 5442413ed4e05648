"""`fastvideo route`: which engine a request would go to, and why."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fastvideo.cli.options import AsJson


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("route")(route)


def route(
    request: Annotated[
        Path, typer.Argument(metavar="REQUEST.yaml", help="What is asked: model, prompt, sampling.")
    ],
    card: Annotated[
        list[Path],
        typer.Option("--card", help="An engine, as `fastvideo describe --json` wrote it."),
    ],
    family: Annotated[
        list[str] | None,
        typer.Option("--family", metavar="PACKAGE", help="A family of your own, by import name."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose the engine that is predicted to have a request done first. No server is needed."""
    from fastvideo.cli.offers import read_offers, route_record, told_route
    from fastvideo.deployment.catalog import Catalog
    from fastvideo.deployment.fleet import choose
    from fastvideo.deployment.routed import read_routed

    asked = read_routed(request, Catalog.load(packages=tuple(family or ())))
    offers = [offer for path in card for offer in read_offers(path)]
    chosen = choose(asked.spec, offers, capability=asked.capability)
    if as_json:
        typer.echo(json.dumps(route_record(chosen), indent=2))
    else:
        told_route(chosen)
