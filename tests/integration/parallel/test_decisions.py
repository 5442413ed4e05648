"""Two ranks in two processes take one decision at every boundary."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.plugins.servers import free_port

WAIT_S_MAX = 120.0
SIZE = 2


@pytest.fixture(scope="module")
def seen() -> list[dict[str, Any]]:
    """What each rank saw of the scenarios of `rank.py`."""
    address = f"127.0.0.1:{free_port()}"
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.integration.parallel.rank", address, str(rank), "2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(SIZE)
    ]
    try:
        told = [process.communicate(timeout=WAIT_S_MAX) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait(30)
    assert processes[0].returncode == 0, told[0][1]
    merged = []
    for output, _ in told:
        scenarios: dict[str, Any] = {}
        for line in output.splitlines():
            scenarios |= json.loads(line)
        merged.append(scenarios)
    return merged


@pytest.mark.row("SCH-24")
@pytest.mark.parametrize(
    ("scenario", "steps", "aborted_by", "reason"),
    [
        ("undisturbed", 6, None, ""),
        ("aborted_by_1", 3, 1, "out of memory"),
        ("aborted_by_0", 2, 0, "cancelled"),
        # Of several the lowest rank's reason is told, everywhere.
        ("aborted_by_all", 4, 0, "cancelled"),
        ("again", 6, None, ""),
    ],
)
def test_all_ranks_stop_at_one_boundary_for_one_reason(
    seen: list[dict[str, Any]], scenario: str, steps: int, aborted_by: int | None, reason: str
) -> None:
    first, second = (of_rank[scenario] for of_rank in seen)
    # Boundary, decision, reason, steps taken and the bits of the state: the same on both ranks.
    assert first == second
    assert (first["steps"], first["aborted_by"], first["reason"]) == (steps, aborted_by, reason)
    assert first["decision"] == ("stop" if aborted_by is None else "")


def test_an_abort_leaves_the_ranks_fit_for_the_next_run(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["again"]["row"] == seen[0]["undisturbed"]["row"]
    assert seen[0]["aborted_by_1"]["row"] != seen[0]["undisturbed"]["row"]


def test_only_rank_0_decides(seen: list[dict[str, Any]]) -> None:
    assert [of_rank["wrong_caller"] for of_rank in seen] == ["CONTRACT_VIOLATION"] * SIZE


def test_ranks_at_different_boundaries_are_told_so(seen: list[dict[str, Any]]) -> None:
    assert [of_rank["apart"] for of_rank in seen] == ["RANKS_APART"] * SIZE


def test_a_rank_that_is_gone_is_a_typed_error_in_bounded_time(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["lost"] == "RANKS_APART"
