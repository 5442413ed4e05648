"""Runs scenarios: one world, or many of them at once."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from fastvideo.simulation.figures import RunFigures
from fastvideo.simulation.reading import read_scenario
from fastvideo.simulation.witness import InvariantBroken
from fastvideo.simulation.world import World


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one world: its figures, or what did not hold in it."""

    seed: int
    figures: RunFigures | None = None
    broken: str = ""
    # The command that runs it again up to there.
    again: str = ""


def run_world(path: Path, changes: Sequence[str], seed: int) -> Outcome:
    """Run one world to its end."""
    world = World(read_scenario(path, changes), seed)
    try:
        world.run()
    except InvariantBroken as broken:
        return Outcome(seed, broken=broken.message, again=broken.attributes["replay"])
    return Outcome(seed, figures=world.summary())


def run_worlds(
    path: Path, changes: Sequence[str], seeds: Sequence[int], processes: int
) -> Iterator[Outcome]:
    """Run a world for each seed, several at a time; outcomes come in the order of the seeds."""
    if processes <= 1:
        for seed in seeds:
            yield run_world(path, changes, seed)
        return
    # Not by fork, which copies the locks of threads that are not copied.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        count = len(seeds)
        yield from pool.map(run_world, [path] * count, [changes] * count, seeds)
