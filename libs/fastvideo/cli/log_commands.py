"""`fastvideo log` show, tail, export, stats and verify."""

from pathlib import Path
from typing import Annotated

import typer

from fastvideo.cli import log_options as options
from fastvideo.cli.failures import told_apart
from fastvideo.cli.options import AsJson, Gateway, gateway_target
from fastvideo.cli.stack import DataOption
from fastvideo.errors import InvalidField

EXIT_FAULTS = 1

# An id that begins so is that of a stream; others are of requests.
_STREAMS = ("request-", "session-", "artifact-", "scheduler-", "worker-", "model-", "tenant-")


def register(app: typer.Typer) -> None:
    """Add the commands to the group of commands about the log."""
    app.command("show")(show)
    app.command("tail")(tail)
    app.command("export")(export)
    app.command("stats")(stats)
    app.command("verify")(verify)


def show(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="STREAM|REQUEST",
            help="A stream, such as scheduler-0, or a request: then also the batches and "
            "decisions that it shared with others.",
        ),
    ] = None,
    requests: options.Requests = None,
    sessions: options.Sessions = None,
    models: options.Models = None,
    workers: options.Workers = None,
    types: options.Types = None,
    tenants: options.Tenants = None,
    streams: options.Streams = None,
    since: options.Since = "",
    until: options.Until = "",
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="At most so many: the first ones of a stream or request, else the newest; "
            "default: all of a stream or request, else 100.",
        ),
    ] = None,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Show events, oldest first; with --json one object a line."""
    from fastvideo.cli.log_reading import show_log, show_newest

    if what is not None and not what.strip():
        # Such as an empty variable of a script: nobody means the whole log by it.
        raise typer.BadParameter("is empty", param_hint="STREAM|REQUEST")
    is_stream = what is not None and what.startswith(_STREAMS)
    wanted = options.event_filter(
        requests=[*(requests or ()), *([what] if what and not is_stream else ())],
        sessions=sessions,
        models=models,
        workers=workers,
        types=types,
        tenants=tenants,
        streams=[*(streams or ()), *([what] if is_stream else ())],
        since=since,
        until=until,
    )
    target = gateway_target(gateway, data)
    if what:
        show_log(target, wanted, limit=limit, as_json=as_json)
    else:
        show_newest(target, wanted, limit=limit or 100, as_json=as_json)


def tail(
    requests: options.Requests = None,
    sessions: options.Sessions = None,
    models: options.Models = None,
    workers: options.Workers = None,
    types: options.Types = None,
    tenants: options.Tenants = None,
    streams: options.Streams = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Begin with so many that are there.")
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Go on with what comes.")
    ] = True,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Follow the log until Ctrl-C; with --json one object a line.

    A gateway that goes away and comes back costs no event and doubles none.
    """
    from fastvideo.cli.log_reading import tail_log

    wanted = options.event_filter(
        requests=requests,
        sessions=sessions,
        models=models,
        workers=workers,
        types=types,
        tenants=tenants,
        streams=streams,
    )
    tail_log(gateway_target(gateway, data), wanted, lines=lines, follow=follow, as_json=as_json)


def export(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A name that ends in .jsonl or .parquet.")
    ],
    requests: options.Requests = None,
    sessions: options.Sessions = None,
    models: options.Models = None,
    workers: options.Workers = None,
    types: options.Types = None,
    tenants: options.Tenants = None,
    streams: options.Streams = None,
    since: options.Since = "",
    until: options.Until = "",
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Write events to a file: JSON lines as `show --json` gives them, or Parquet.

    Parquet has a row an event: the envelope and what it is about as columns, the payload as JSON.
    Exit code 1 when some could not be read, which the file says in their place; 2 says that there
    is no file.
    """
    from fastvideo.cli.log_export import export_log, writer_of

    wanted = options.event_filter(
        requests=requests,
        sessions=sessions,
        models=models,
        workers=workers,
        types=types,
        tenants=tenants,
        streams=streams,
        since=since,
        until=until,
    )
    # A name that nothing can be written to is told before anything else.
    try:
        writer_of(file)
    except InvalidField as error:
        raise typer.BadParameter(error.message, param_hint="FILE") from error
    if not file.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {file.parent}", param_hint="FILE")
    with told_apart(as_json=as_json):
        is_whole = export_log(gateway_target(gateway, data), wanted, file, as_json=as_json)
    if not is_whole:
        raise typer.Exit(EXIT_FAULTS)


def stats(gateway: Gateway = "", data: DataOption = None, as_json: AsJson = False) -> None:
    """Show how much is in the log, by type, and how far its readers are behind."""
    from fastvideo.cli.log_reading import show_stats

    show_stats(gateway_target(gateway, data), as_json=as_json)


def verify(gateway: Gateway = "", data: DataOption = None, as_json: AsJson = False) -> None:
    """Read the whole log again and check it; exit code 1 when something is not as it must be.

    2 says that it could not be checked. Checked are offsets, payloads against their SHA-256,
    stream versions, event ids, heads, times, whether known types can be read, archives, and that
    the database refuses changes.
    """
    from fastvideo.cli.log_verifying import verify_log

    with told_apart(as_json=as_json):
        is_intact = verify_log(gateway_target(gateway, data), as_json=as_json)
    if not is_intact:
        raise typer.Exit(EXIT_FAULTS)
