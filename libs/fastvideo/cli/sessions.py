"""`fastvideo session`: create, get, list, push and close."""

from typing import Annotated

import typer

from fastvideo.cli.options import AsJson, Gateway, gateway_target
from fastvideo.cli.stack import DataOption
from fastvideo.model.embedded import EMBEDDED_MODEL_ID

SessionId = Annotated[str, typer.Argument(metavar="ID", help="The session's id.")]


def register(parent: typer.Typer) -> None:
    """Add the commands to an application."""
    app = typer.Typer(help="Sessions: contexts that requests may name.", no_args_is_help=True)
    app.command("create")(create)
    app.command("get")(get)
    app.command("list")(list_sessions)
    app.command("push")(push)
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
    conditioning: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="What joins the prompts of its requests: independent (nothing), pushed (texts "
            "that were pushed) or memory (those, and earlier prompts).",
        ),
    ] = "independent",
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Open a session."""
    from fastvideo.cli.inspection import create_session

    model_ids = model or [EMBEDDED_MODEL_ID]
    create_session(
        gateway_target(gateway, data), model_ids, timeout, memory, conditioning, as_json=as_json
    )


def get(
    session_id: SessionId, gateway: Gateway = "", data: DataOption = None, as_json: AsJson = False
) -> None:
    """Show a session."""
    from fastvideo.cli.inspection import show_session

    show_session(gateway_target(gateway, data), session_id, as_json=as_json)


def list_sessions(
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """List sessions; with --json as one array."""
    from fastvideo.cli.inspection import list_sessions as show

    show(gateway_target(gateway, data), limit, as_json=as_json)


def push(
    session_id: SessionId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="1 to 2,000 characters.")],
    role: Annotated[
        str,
        typer.Option(
            metavar="ROLE",
            help="context stands before all its prompts; prompt is remembered as one.",
        ),
    ] = "context",
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Give a session a text that conditions its later requests."""
    from fastvideo.cli.inspection import push_text

    push_text(gateway_target(gateway, data), session_id, text, role, as_json=as_json)


def close(
    session_id: SessionId, gateway: Gateway = "", data: DataOption = None, as_json: AsJson = False
) -> None:
    """Close a session."""
    from fastvideo.cli.inspection import close_session

    close_session(gateway_target(gateway, data), session_id, as_json=as_json)
