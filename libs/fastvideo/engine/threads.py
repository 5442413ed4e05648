"""How many threads a forward runs on: the fastest count that keeps the bits of one thread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

# A larger count must win by this much, so that noise does not decide.
_GAIN_MIN: Final = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadMeasurement:
    """What a short probe found at one count."""

    threads: int
    # A short generation, seconds.
    seconds: float
    # Digest of what was computed.
    digest: str


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
