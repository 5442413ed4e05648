"""`fastvideo simulate`: the scheduler in virtual time, to plan capacity and to find faults."""

from pathlib import Path
from typing import Annotated

import typer

from fastvideo.cli.options import AsJson


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("simulate")(simulate)


def simulate(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="The world, as YAML; see docs/simulation.")
    ],
    seed: Annotated[int, typer.Option(min=0, help="What chance comes from.")] = 0,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help='Change a value of the trace, such as "pools.gpu.count=8"; may be repeated.',
        ),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option("--png", metavar="FILE", help="Draw utilisation, queue and latencies."),
    ] = None,
    until: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Stop at this virtual time.")
    ] = None,
    history: Annotated[
        int, typer.Option(min=0, metavar="N", help="Print the last N inputs and decisions.")
    ] = 0,
    worlds: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Run N worlds, from this seed on, and only check."),
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Simulate the scheduler over a trace: arrivals, workers and faults, in virtual time.

    The same seed gives the same history. After every input it is checked that nothing was
    granted twice, leaked, starved or lost; what does not hold is told with the command that
    runs the world again up to there.
    """
    from fastvideo.cli.simulation import Wishes, check_worlds, show_world

    wishes = Wishes(
        trace=trace,
        seed=seed,
        changes=tuple(changes or ()),
        png=png,
        until_s=until,
        history_lines=history,
        as_json=as_json,
    )
    if worlds > 1:
        check_worlds(wishes, worlds)
    else:
        show_world(wishes)
