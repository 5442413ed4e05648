"""`fastvideo trace`: the tree of what was done for a request, over all processes."""

import os
from typing import Annotated

import typer

from fastvideo.cli.options import AsJson, Gateway
from fastvideo.cli.stack import DataOption


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("trace")(trace)


def trace(
    request_id: Annotated[
        str, typer.Argument(metavar="REQUEST", help="The request's id.", show_default=False)
    ] = "",
    trace_id: Annotated[
        str,
        typer.Option("--trace-id", metavar="ID", help="A trace by its id, such as an exemplar's."),
    ] = "",
    every: Annotated[
        bool, typer.Option("--all", help="Show each span; spans that are alike are one line else.")
    ] = False,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Draw the tree of spans of a request, with durations and self times.

    Spans are looked for in the trace store that FASTVIDEO_TRACE_QUERY_URL names, then among those
    that a local stack keeps; without either the tree is made of the event log.
    """
    from fastvideo.cli.config import load_config
    from fastvideo.cli.tracing import show_trace

    if bool(request_id) == bool(trace_id):
        raise typer.BadParameter("name a request, or a trace by --trace-id")
    config = load_config(os.environ)
    show_trace(
        config, request_id, trace_id, gateway=gateway, data=data, every=every, as_json=as_json
    )
