"""The stack's commands as a program of their own."""

import typer

from fastvideo.cli import stack

app = typer.Typer()
stack.register(app)

if __name__ == "__main__":
    app()
