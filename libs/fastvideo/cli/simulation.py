"""What `fastvideo simulate` does."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.progress import TimeElapsedColumn

from fastvideo.cli.counting import terminal_bar
from fastvideo.cli.failures import tell
from fastvideo.cli.report import print_json, print_lines
from fastvideo.errors import InvalidField
from fastvideo.simulation.picture import save_picture
from fastvideo.simulation.reading import Scenario, read_scenario
from fastvideo.simulation.report import report_lines
from fastvideo.simulation.running import run_worlds
from fastvideo.simulation.witness import InvariantBroken, Unsettled
from fastvideo.simulation.world import Progress, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the command was given."""

    trace: Path
    seed: int
    changes: tuple[str, ...] = ()
    png: Path | None = None
    until_s: float | None = None
    history_lines: int = 0
    as_json: bool = False


def show_world(wishes: Wishes) -> None:
    """Run one world and show what it comes to. Raises InvariantBroken."""
    if wishes.png is not None and not wishes.png.parent.is_dir():
        raise InvalidField("--png", str(wishes.png), "a file in a folder that is there")
    scenario = read_scenario(wishes.trace, wishes.changes)
    world = World(scenario, wishes.seed, kept_lines=wishes.history_lines)
    try:
        with _progress(scenario.trace.duration_s) as progress:
            world.run(until_s=wishes.until_s, progress=progress)
    except Unsettled:
        _show(wishes, scenario, world)
        raise
    except InvariantBroken as broken:
        print_lines(world.history.lines)
        tell(f"run it again up to there: {broken.attributes['replay']}")
        raise
    _show(wishes, scenario, world)


def _show(wishes: Wishes, scenario: Scenario, world: World) -> None:
    run = world.summary()
    if wishes.png is not None:
        save_picture(world.figures, run, scenario.trace.description or scenario.source, wishes.png)
    if wishes.as_json:
        print_json(run.record())
    else:
        print_lines([*world.history.lines, *report_lines(run)])


def check_worlds(wishes: Wishes, worlds: int) -> None:
    """Run many worlds. Raises InvariantBroken when something does not hold in one of them."""
    if wishes.png is not None or wishes.until_s is not None or wishes.history_lines:
        raise InvalidField("--worlds", worlds, "1 with --png, --until and --history")
    seeds = range(wishes.seed, wishes.seed + worlds)
    read_scenario(wishes.trace, wishes.changes)
    requests = units = 0
    failed = []
    outcomes = run_worlds(wishes.trace, wishes.changes, seeds, os.cpu_count() or 1)
    for outcome in outcomes:
        if outcome.figures is None:
            failed.append(outcome)
            tell(f"{outcome.broken}\n  run it again up to there: {outcome.again}")
        else:
            requests += outcome.figures.requests
            units += outcome.figures.units
    if wishes.as_json:
        broken = [{"seed": o.seed, "broken": o.broken, "again": o.again} for o in failed]
        print_json({"worlds": worlds, "requests": requests, "units": units, "broken": broken})
    if failed:
        raise InvariantBroken(
            f"{len(failed)} of {worlds} worlds are broken, the first with seed {failed[0].seed}",
            subject=str(wishes.trace),
        )
    if not wishes.as_json:
        print_lines([f"{worlds} worlds, {requests} requests, {units} units: all invariants hold"])


@contextmanager
def _progress(duration_s: float) -> Iterator[Callable[[Progress], None]]:
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    with terminal_bar(TimeElapsedColumn()) as bars:
        task = bars.add_task("", total=duration_s)

        def show(progress: Progress) -> None:
            words = (
                f"{progress.virtual_s:.0f} s, {progress.ended} of {progress.requests} requests "
                f"ended, {progress.inputs} inputs"
            )
            bars.update(task, description=words, completed=min(duration_s, progress.virtual_s))

        yield show
