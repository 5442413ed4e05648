"""`fastvideo parity`."""

from pathlib import Path
from typing import Annotated

import typer

from fastvideo.cli.options import AsJson, Gateway, gateway_target
from fastvideo.cli.stack import DataOption
from fastvideo.model.embedded import EMBEDDED_MODEL_ID


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("parity")(parity)


def parity(
    model: Annotated[str, typer.Argument(help="model id")] = EMBEDDED_MODEL_ID,
    checkpoints: Annotated[
        Path | None, typer.Option("--checkpoints", help="folder of checkpoints, one a model")
    ] = None,
    steps: Annotated[list[int] | None, typer.Option("--steps", help="steps of a case")] = None,
    seeds: Annotated[list[int] | None, typer.Option("--seed", help="seed of a case")] = None,
    record: Annotated[
        bool, typer.Option("--record", help="keep the results in the log of the gateway")
    ] = False,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Compare a model with its upstream pipeline, here; exit 1 when it is beyond its tolerance."""
    from fastvideo.cli.parity_check import ParityCase, check_parity

    # Found first: a check takes long, and its results are to be kept.
    target = gateway_target(gateway, data) if record else None
    case = ParityCase(model, checkpoints, tuple(steps or ()), tuple(seeds or ()))
    raise typer.Exit(0 if check_parity(case, target, as_json=as_json) else 1)
