"""How much of something long is done: a bar on a terminal, nothing elsewhere."""

import sys

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)


def terminal_bar(*columns: ProgressColumn) -> Progress:
    """A bar on standard error that is gone at the end, its task's description before it and the
    columns behind it; add one task to it.
    """
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def counting_bar() -> Progress:
    """The bar of things that are counted: how many of how many, and how long they will take."""
    return terminal_bar(MofNCompleteColumn(), TimeRemainingColumn())
