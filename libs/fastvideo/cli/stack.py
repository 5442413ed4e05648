"""`fastvideo up`, `down`, `status` and `logs`: the embedded stack on this machine."""

import asyncio
import dataclasses
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fastvideo.cli.failures import EXIT_FAILED
from fastvideo.errors import FailedPrecondition, InvalidField
from fastvideo.local.config import StackOptions, load_config, options_for
from fastvideo.local.folder import DataFolder
from fastvideo.local.launch import start_detached, stop_running
from fastvideo.local.logs import follow, lines_end, tail

if TYPE_CHECKING:
    from fastvideo.cli.stack_view import StartProgress

EXIT_NOT_RUNNING = 3

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder for data, logs and state; default: $FASTVIDEO_DATA, else"
        " /var/lib/fastvideo for root and ~/.local/share/fastvideo for others.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command("up")(up)
    app.command("down")(down)
    app.command("status")(status)
    app.command("logs")(logs)


def up(
    data: DataOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when ready, go on in the background.")
    ] = False,
    http: Annotated[int | None, typer.Option(help="Port of the gateway's HTTP.")] = None,
    grpc: Annotated[int | None, typer.Option(help="Port of the gateway's gRPC.")] = None,
    workers: Annotated[int, typer.Option(help="Number of workers.")] = 1,
    schedulers: Annotated[int, typer.Option(help="Number of schedulers; one leads.")] = 1,
    policy: Annotated[
        Path | None,
        typer.Option(help="File of the scheduling policy, YAML or JSON: docs/scheduling.md."),
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="Ask for API keys; else open to all of this machine.")
    ] = False,
) -> None:
    """Start Postgres, NATS, Redis and the services, or say why one of them does not start."""
    from fastvideo.cli.stack_view import StartProgress

    _require_extra()
    folder = options_for(data, os.environ).folder
    if policy is not None:
        _check_policy(policy)
    options = StackOptions(folder.root, http, grpc, workers, schedulers, policy, keys)
    with StartProgress(Console(stderr=True)) as progress:
        if detach:
            addresses = start_detached(options, os.environ, progress)
            progress.close()
            _print_addresses(addresses.gateway, addresses.gateway_http, options, detached=True)
        else:
            _run_here(options, progress, os.environ)


def serve_here(options: StackOptions, environment: Mapping[str, str]) -> None:
    """Run a stack in the foreground until Ctrl-C; a start that fails ends with exit code 1."""
    from fastvideo.cli.stack_view import StartProgress

    _require_extra()
    with StartProgress(Console(stderr=True)) as progress:
        _run_here(options, progress, environment)


def _check_policy(policy: Path) -> None:
    """Refuse a file that the schedulers would refuse, before anything starts."""
    from fastvideo.deployment.scheduling_policy import read_policy

    read_policy(policy)


def down(data: DataOption = None) -> None:
    """Stop the stack; its data stays."""
    folder = options_for(data, os.environ).folder
    stopped = stop_running(folder)
    typer.echo("stopped" if stopped else f"no stack is running in {folder.root}")


def status(
    data: DataOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Show all parts. Exit code 0: all are ready, 1: not all, 3: no stack is running."""
    _require_extra()
    from fastvideo.cli.stack_view import print_status
    from fastvideo.local.status import stack_status

    found = stack_status(options_for(data, os.environ).folder)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(found), indent=2))
    else:
        print_status(Console(), found)
    if not found.ready:
        raise typer.Exit(EXIT_FAILED if found.running else EXIT_NOT_RUNNING)


def logs(
    service: Annotated[
        str, typer.Argument(help="A part such as gateway, worker-1 or postgres; worker is all.")
    ],
    data: DataOption = None,
    follow_on: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new lines until Ctrl-C.")
    ] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Last lines to show.")] = 100,
) -> None:
    """Show the output of a part."""
    folder = options_for(data, os.environ).folder
    paths = _log_files(folder, service)
    ends = {name: lines_end(path) for name, path in paths.items()}
    for name, path in paths.items():
        for line in tail(path, lines, until=ends[name] if follow_on else None):
            _print_line(name, line, labelled=len(paths) > 1)
    if follow_on:
        try:
            for name, line in follow(paths, ends):
                _print_line(name, line, labelled=len(paths) > 1)
        except KeyboardInterrupt:
            return


def _require_extra() -> None:
    if importlib.util.find_spec("psutil") is None:
        raise FailedPrecondition(
            "the embedded stack needs the extra `local`: pip install 'fastvideo-v2[local]'",
            reason="EXTRA_MISSING",
        )


def _run_here(
    options: StackOptions, progress: "StartProgress", environment: Mapping[str, str]
) -> None:
    from fastvideo.local.stack import run_stack
    from fastvideo.local.state import StackState

    def on_ready(state: StackState) -> None:
        progress.close()
        addresses = state.addresses
        _print_addresses(addresses["gateway"], addresses["gateway-http"], options, detached=False)

    asyncio.run(run_stack(load_config(options, environment), progress, on_ready))
    typer.echo("stopped")


def _print_addresses(gateway: str, http: str, options: StackOptions, *, detached: bool) -> None:
    stop = "`fastvideo down` stops it" if detached else "Ctrl-C stops it"
    typer.echo(f"ready; {stop}")
    typer.echo(f"  gRPC  {gateway}")
    typer.echo(f"  HTTP  http://{http}")
    typer.echo(f"  page  http://{http}/")
    typer.echo(f"  probe http://{http}/health/ready")
    typer.echo(f"  data  {options.folder.root}")
    if options.keys:
        typer.echo(f"  keys  asked for; the operator's is in {options.folder.operator_key}")
    else:
        typer.echo("  keys  not asked for: open to everybody on this machine (up --keys asks)")
    sys.stdout.flush()


def _log_files(folder: DataFolder, service: str) -> dict[str, Path]:
    found = {path.stem: path for path in sorted(folder.logs.glob("*.log"))}
    chosen = {
        name: path
        for name, path in found.items()
        if name == service or name.rpartition("-")[0] == service
    }
    if not chosen:
        known = ", ".join(found) or f"none, since nothing ran in {folder.root}"
        raise InvalidField("SERVICE", service, known)
    return chosen


def _print_line(name: str, line: str, *, labelled: bool) -> None:
    typer.echo(f"{name}: {line}" if labelled else line)
