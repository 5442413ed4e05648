"""`fastvideo session`: create, get, list and close."""

import os
from typing import Annotated

import typer

from fastvideo.cli.options import AsJson, Gateway
from fastvideo.cli.stack import DataOption

SessionId = Annotated[str, typer.Argument(metavar="ID", help="The session's id.")]


def register(parent: typer.Typer) -> None:
    """Add the commands to an application."""
    app = typer.Typer(help="Sessions: contexts that requests may name.", no_args_is_help=True)
    app.command("create")(create)
    app.command("get")(get)
    app.command("list")(list_sessions)
    app.command("close")(close)
    parent.add_typer(app, name="session")


def create(
    model: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A model it is bound to; repeatable.")
    ] = None,
    timeout: Annotated[
        int, typer.Option(min=0, help="Seconds without a request until it closes; 0: default.")
    ] = 0,
    memory: Annotated[int, typer.Option(min=0, help="Prompts to remember; 0: default.")] = 0,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Open a session."""
    from fastvideo.cli.inspection import create_session

    model_ids = model or ["moving-digits"]
    create_session(_address(gateway, data), model_ids, timeout, memory, as_json=as_json)


def get(
    session_id: SessionId, gateway: Gateway = "", data: DataOption = None, as_json: AsJson = False
) -> None:
    """Show a session."""
    from fastvideo.cli.inspection import show_session

    show_session(_address(gateway, data), session_id, as_json=as_json)


def list_sessions(
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """List sessions; with --json as one array."""
    from fastvideo.cli.inspection import list_sessions as show

    show(_address(gateway, data), limit, as_json=as_json)


def close(
    session_id: SessionId, gateway: Gateway = "", data: DataOption = None, as_json: AsJson = False
) -> None:
    """Close a session."""
    from fastvideo.cli.inspection import close_session

    close_session(_address(gateway, data), session_id, as_json=as_json)


def _address(gateway: str, data: DataOption) -> str:
    from fastvideo.cli.config import load_config
    from fastvideo.cli.connection import find_gateway

    return find_gateway(load_config(os.environ), gateway, data)
