"""`fastvideo batch`: many generations from a file into a folder."""

import os
from pathlib import Path
from typing import Annotated

import typer

from fastvideo.cli.options import AsJson, Gateway
from fastvideo.cli.stack import DataOption


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("batch")(batch)


def batch(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help='A JSON object a line: "prompt", and as needed "id", "model", "negative_prompt", '
            '"image", "sampling", "outputs", "priority".',
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the files and the manifest go.")
    ],
    at_once: Annotated[
        int, typer.Option("--at-once", min=1, max=1_000, help="Requests in flight at a time.")
    ] = 16,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Ask again for what failed in an earlier run.")
    ] = False,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Generate every line of a file; a line that fails harms no other.

    Run again with the same folder it goes on where it was, after a kill too, and asks nothing
    twice. DIR/manifest.jsonl says what became of each line. Exit code 1 when one failed.
    """
    from fastvideo.cli.batch_run import run_file
    from fastvideo.cli.config import load_config
    from fastvideo.cli.connection import find_or_start_gateway
    from fastvideo.client.batch_file import read_batch

    items = read_batch(file)
    target = find_or_start_gateway(load_config(os.environ), gateway, data)
    code = run_file(
        target,
        items,
        out,
        base=file.parent,
        at_once=at_once,
        retry_failed=retry_failed,
        as_json=as_json,
    )
    raise typer.Exit(code)
