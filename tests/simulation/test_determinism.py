"""The same seed gives the same history, in this process and in others."""

import os
import subprocess
import sys
from pathlib import Path

from fastvideo.scheduling.core import SchedulerCore
from fastvideo.simulation.leader import Entry
from fastvideo.simulation.reading import read_scenario
from fastvideo.simulation.world import World

WORLD = Path(__file__).parent / "worlds" / "everything.yaml"
CHANGES = ("duration_s=8",)
DIGEST = """
import sys
from pathlib import Path
from fastvideo.simulation.reading import read_scenario
from fastvideo.simulation.world import World
world = World(read_scenario(Path(sys.argv[1]), sys.argv[2:]), 7)
world.run()
print(world.history.digest)
"""


def history(seed: int) -> list[Entry]:
    """All entries of a world."""
    entries: list[Entry] = []
    world = World(read_scenario(WORLD, CHANGES), seed)
    world.listen(entries.append)
    world.run()
    return entries


def test_a_seed_gives_one_history_to_the_last_field() -> None:
    assert history(7) == history(7)


def test_another_seed_gives_another() -> None:
    assert history(7) != history(8)


def test_neither_hashes_nor_processes_change_a_history() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", DIGEST, str(WORLD), *CHANGES],
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        digests.add(ran.stdout.strip())
    assert len(digests) == 1


def test_a_replay_of_a_history_gives_the_state_of_the_core_that_made_it() -> None:
    scenario = read_scenario(WORLD, (*CHANGES, "faults.scheduler_switch=null"))
    world = World(scenario, 7)
    entries: list[Entry] = []
    world.listen(entries.append)
    world.run(until_s=5.0)
    core = world.shard.core
    assert core is not None
    again = SchedulerCore(scenario.models, policy=scenario.trace.policy, epoch=1)
    for entry in entries:
        again.replay(entry.event, entry.decisions, entry.now)
    assert again.digest() == core.digest()
