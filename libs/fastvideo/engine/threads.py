"""How many threads a forward runs on: the fastest count that keeps the bits of one thread."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch

# A larger count must win by this much, so that noise does not decide.
_GAIN_MIN: Final = 1.1
_SLOTS_MAX: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadMeasurement:
    """What a short probe found at one count."""

    threads: int
    # A short generation, seconds.
    seconds: float
    # Digest of what was computed.
    digest: str


def compute_slots(threads: int | None) -> int:
    """How many batches may compute side by side on this machine, each on so many threads.

    Two on a processor with room for both; more would cut batches into pieces that cost more a
    row. One on an accelerator, where a second batch waits for the first anyway, and while it is
    not known how many threads a batch takes.
    """
    if threads is None or torch.cuda.is_available():
        return 1
    return max(1, min(_SLOTS_MAX, len(os.sched_getaffinity(0)) // threads))


def choose_threads(
    counts: Sequence[int], measure: Callable[[int], ThreadMeasurement]
) -> tuple[int, tuple[ThreadMeasurement, ...]]:
    """The count to use, and all that was measured, counts in the order given.

    A count whose bits differ from the first one's is never chosen: else a restart could give a
    request other bits. A request that is computed anew after a crash must not change.
    """
    measured = tuple(measure(count) for count in counts)
    best = measured[0]
    for candidate in measured[1:]:
        exact = candidate.digest == measured[0].digest
        if exact and candidate.seconds * _GAIN_MIN < best.seconds:
            best = candidate
    return best.threads, measured
