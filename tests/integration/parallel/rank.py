"""One rank of several: runs scenarios in lockstep with the others and prints what it saw.

    python -m tests.integration.parallel.rank HOST:PORT RANK SIZE

Each rank holds half of a linear layer's inputs; a step adds the halves by an all-reduce, so a
rank that left alone would leave the others waiting in it.
"""

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist

from fastvideo.errors import FastVideoError
from fastvideo.parallel.decisions import Ranks

WIDTH = 8
STEPS = 6
TIMEOUT_S = 20.0
STOP = b"stop"


class ParallelLinear:
    """A linear layer split over ranks by its inputs."""

    def __init__(self, ranks: Ranks) -> None:
        whole = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        torch.manual_seed(0)
        torch.nn.init.orthogonal_(whole.weight)
        part = WIDTH // ranks.size
        self._columns = slice(ranks.rank * part, (ranks.rank + 1) * part)
        self._weight = whole.weight.detach()[:, self._columns]

    def step(self, row: torch.Tensor) -> torch.Tensor:
        """[WIDTH] after one step; every rank must call it."""
        total = self._weight @ row[self._columns]
        dist.all_reduce(total)
        return total


def run(ranks: Ranks, layer: ParallelLinear, aborts: dict[int, dict[int, str]]) -> dict[str, Any]:
    """Steps until rank 0 says stop or somebody aborts; `aborts` is boundary, rank, reason."""
    row = torch.arange(WIDTH, dtype=torch.float32)
    for index in range(STEPS + 1):
        decision = None
        if ranks.rank == 0:
            decision = STOP if index == STEPS else f"step {index}".encode()
        verdict = ranks.decide(decision, abort=aborts.get(index, {}).get(ranks.rank, ""))
        if verdict.aborted or verdict.decision == STOP:
            break
        row = layer.step(row)
    return {
        "boundary": verdict.boundary,
        "decision": verdict.decision.decode(),
        "aborted_by": verdict.aborted_by,
        "reason": verdict.reason,
        "steps": index,
        "row": row.numpy().tobytes().hex(),
    }


def refusal(ranks: Ranks, decision: bytes | None) -> str:
    """Why a call is refused before anything is sent."""
    try:
        ranks.decide(decision)
    except FastVideoError as error:
        return error.reason
    return ""


def main() -> None:
    address, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    ranks = Ranks.join(address, rank, size, TIMEOUT_S)
    layer = ParallelLinear(ranks)
    seen: dict[str, Any] = {
        "wrong_caller": refusal(ranks, b"mine" if rank else None),
        "undisturbed": run(ranks, layer, {}),
        "aborted_by_1": run(ranks, layer, {3: {1: "out of memory"}}),
        "aborted_by_0": run(ranks, layer, {2: {0: "cancelled"}}),
        "aborted_by_all": run(ranks, layer, {4: {0: "cancelled", 1: "out of memory"}}),
        "again": run(ranks, layer, {}),
    }
    if rank == 1:
        # As after a step that it alone did not take.
        ranks._boundary += 1
    seen["apart"] = refusal(ranks, b"next" if rank == 0 else None)
    ranks._boundary = 1_000
    sys.stdout.write(json.dumps(seen) + "\n")
    sys.stdout.flush()
    if rank == 1:
        # As `kill -9` does: the others find out at the next boundary.
        os._exit(9)
    sys.stdout.write(json.dumps({"lost": refusal(ranks, b"next")}) + "\n")
    sys.stdout.flush()
    # There is nobody to take leave of.
    os._exit(0)


if __name__ == "__main__":
    main()
