"""`fastvideo route`: which engine a request would go to, and why."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastvideo.cli.options import AsJson, gateway_target
from fastvideo.errors import InvalidField

if TYPE_CHECKING:
    from fastvideo.deployment.card import EngineOffer


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("route")(route)


def route(
    request: Annotated[
        Path,
        typer.Argument(
            metavar="REQUEST.yaml", help="What would be asked: model, prompt, sampling."
        ),
    ],
    card: Annotated[
        list[Path] | None,
        typer.Option(
            "--card",
            metavar="FILE",
            help="Engines to choose among, as `fastvideo describe --json` wrote them; repeatable.",
        ),
    ] = None,
    gateway: Annotated[
        list[str] | None,
        typer.Option(
            "--gateway",
            metavar="HOST:PORT",
            help="A running deployment to choose among, asked now; its engines are named "
            "HOST:PORT/ENGINE. Repeatable.",
        ),
    ] = None,
    family: Annotated[
        list[str] | None,
        typer.Option("--family", metavar="PACKAGE", help="A family of your own, by import name."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say which engine would have a request done first, among those of cards and gateways.

    Nothing is submitted; with cards alone no server is needed.
    """
    from fastvideo.cli.offers import read_offers, route_record, told_route
    from fastvideo.deployment.catalog import Catalog
    from fastvideo.deployment.fleet import choose
    from fastvideo.deployment.routed import read_routed

    if not card and not gateway:
        raise InvalidField(
            "--card", "", "engines to choose among: --card FILE, --gateway HOST:PORT"
        )
    asked = read_routed(request, Catalog.load(packages=tuple(family or ())))
    offers = [offer for path in card or () for offer in read_offers(path)]
    offers += [offer for address in gateway or () for offer in _asked_now(address)]
    chosen = choose(asked.spec, offers, capability=asked.capability)
    if as_json:
        typer.echo(json.dumps(route_record(chosen), indent=2))
    else:
        told_route(chosen)


def _asked_now(gateway: str) -> "list[EngineOffer]":
    """What a running deployment offers, under names that are its own."""
    from fastvideo.cli.inspection import deployment_of

    target = gateway_target(gateway, None)
    return [
        replace(
            offer,
            card=replace(offer.card, engine_id=f"{target.address}/{offer.card.engine_id}"),
        )
        for offer in deployment_of(target)
    ]
