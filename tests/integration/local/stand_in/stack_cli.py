"""The stack's commands as a program of their own."""

import typer

from fastvideo.cli import stack
from fastvideo.cli.failures import report
from fastvideo.errors import FastVideoError

app = typer.Typer()
stack.register(app)

if __name__ == "__main__":
    try:
        app()
    except FastVideoError as error:
        raise SystemExit(report(error)) from error
