"""The entry point: all commands, and how they end.

Modules that a command needs are imported when it runs, so that `fastvideo --help` is quick.
"""

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from fastvideo.cli import (
    authoring,
    batch,
    explain,
    generate,
    keys,
    log,
    models,
    page,
    parity,
    replay,
    requests,
    route,
    serve,
    sessions,
    simulate,
    stack,
    trace,
)
from fastvideo.cli.config import wants_traceback
from fastvideo.cli.failures import report
from fastvideo.version import program_version

EPILOG = (
    "Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted or cancelled. "
    "Results go to standard output, progress and errors to standard error."
)


def build() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(
        name="fastvideo",
        help="Video generation: prompts in, files out, through real services.",
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    generate.register(app)
    batch.register(app)
    requests.register(app)
    explain.register(app)
    trace.register(app)
    page.register(app)
    log.register(app)
    replay.register(app)
    simulate.register(app)
    models.register(app)
    parity.register(app)
    authoring.register(app)
    route.register(app)
    sessions.register(app)
    keys.register(app)
    serve.register(app)
    stack.register(app)
    app.command("version")(version)
    app.callback()(_options)
    return app


def version() -> None:
    """Print the version."""
    typer.echo(program_version())


def _print_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


def _options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """What stands before a command; the application has its own help."""


def main() -> None:
    """Run the command line and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        # What a terminal of an older encoding cannot show must not end a command.
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
    try:
        build()(standalone_mode=True)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - told in one line, see report
        code = report(
            error,
            as_json="--json" in sys.argv[1:],
            with_traceback=wants_traceback(os.environ),
        )
        sys.exit(code)
