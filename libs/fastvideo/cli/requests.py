"""`fastvideo request`: get, list, cancel, delete, watch and arrivals."""

from typing import Annotated

import typer

from fastvideo.cli.options import AsJson, Gateway, gateway_target
from fastvideo.cli.stack import DataOption

RequestId = Annotated[str, typer.Argument(metavar="ID", help="The request's id.")]


def register(parent: typer.Typer) -> None:
    """Add the commands to an application."""
    app = typer.Typer(
        help="Requests: where they stand, what happened to them.", no_args_is_help=True
    )
    app.command("get")(get)
    app.command("list")(list_requests)
    app.command("cancel")(cancel)
    app.command("delete")(delete)
    app.command("watch")(watch)
    app.command("arrivals")(arrivals)
    parent.add_typer(app, name="request")


def get(
    request_id: RequestId, gateway: Gateway = "", data: DataOption = None, as_json: AsJson = False
) -> None:
    """Show a request."""
    from fastvideo.cli.inspection import show_request

    show_request(gateway_target(gateway, data), request_id, as_json=as_json)


def list_requests(
    status: Annotated[
        str, typer.Option(help="accepted, queued, running, completed, failed or cancelled.")
    ] = "",
    session: Annotated[str, typer.Option(metavar="ID", help="Only those of a session.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """List requests, newest first; with --json as one array."""
    from fastvideo.cli.inspection import list_requests as show

    show(gateway_target(gateway, data), status, session, limit, as_json=as_json)


def cancel(
    request_id: RequestId,
    reason: Annotated[str, typer.Option(help="Why; kept in the log.")] = "",
    loop: Annotated[str, typer.Option(help="Only this node's loop; other branches go on.")] = "",
    stream: Annotated[str, typer.Option(help="Only this output stream's chunks.")] = "",
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a request at its next boundary, and wait until it has ended."""
    from fastvideo.cli.inspection import cancel_request

    target = gateway_target(gateway, data)
    cancel_request(target, request_id, reason, loop=loop, stream=stream, as_json=as_json)


def delete(
    request_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of requests.")],
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Delete requests and what they made; what runs is cancelled first.

    A second time changes nothing. What the log says of them stays, for operators.
    """
    from fastvideo.cli.inspection import delete_requests

    delete_requests(gateway_target(gateway, data), request_ids, as_json=as_json)


def watch(
    request_id: RequestId,
    after: Annotated[int, typer.Option(min=0, help="Only events after this number.")] = 0,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a request's events until it ends; with --json one object a line."""
    from fastvideo.cli.inspection import watch_request

    watch_request(gateway_target(gateway, data), request_id, after, as_json=as_json)


def arrivals(
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 10_000,
    gateway: Gateway = "",
    data: DataOption = None,
) -> None:
    """Record when requests came and what they asked, for `fastvideo simulate`.

    One JSON object a line, the oldest first; no prompt is among it.
    """
    from fastvideo.cli.inspection import record_arrivals

    record_arrivals(gateway_target(gateway, data), limit)
