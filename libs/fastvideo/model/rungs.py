"""The ladder of parity: rungs in order, and what each tap of a model may be apart.

A tap is a place where a model is compared with its reference: a component ("transformer"), a
layer of one ("transformer/blocks.0.attn1.to_q"), or what a loop gives ("latents"). A test of a
card names a tap or a pattern of taps ("transformer/blocks.*"); of those that fit, the most
particular decides. A tap that no test fits is held to its component's test, and else to nothing
but equality.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from fastvideo.model.specs import ParityTestSpec

RUNGS: Final = ("C0", "C1", "C2", "C3", "C4")
"""From single components to whole artifacts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TapParity:
    """One tap against its reference."""

    rung: str
    tap: str
    # Infinite for another shape or NaN.
    max_abs_difference: float
    tolerance: float
    # Of a trajectory: the first step beyond the tolerance, from 0.
    first_step: int | None = None

    @property
    def passed(self) -> bool:
        """Whether the difference is allowed."""
        return self.first_step is None and self.max_abs_difference <= self.tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The rungs that ran, in order, and those that did not."""

    taps: tuple[TapParity, ...]
    # Above a rung that failed nothing is run: what it rests on is wrong.
    not_run: tuple[str, ...] = ()

    @property
    def passes(self) -> bool:
        """Whether every rung ran and every tap is near enough."""
        return not self.not_run and all(tap.passed for tap in self.taps)

    @property
    def first_failure(self) -> TapParity | None:
        """The first tap, in order, that is too far."""
        return next((tap for tap in self.taps if not tap.passed), None)


def climb(rungs: Mapping[str, Callable[[], Iterable[TapParity]]]) -> Ladder:
    """Run rungs from the lowest on, as long as they pass; in whatever order they are given."""
    wanted = sorted(rungs, key=RUNGS.index)
    taps: list[TapParity] = []
    for position, rung in enumerate(wanted):
        found = tuple(rungs[rung]())
        taps += found
        if not all(tap.passed for tap in found):
            return Ladder(taps=tuple(taps), not_run=tuple(wanted[position + 1 :]))
    return Ladder(taps=tuple(taps))


def tolerance_of(tests: Sequence[ParityTestSpec], rung: str, tap: str) -> float:
    """What a tap may be apart on a rung, by the tests of a card."""
    of_rung = [test for test in tests if test.rung == rung]
    component = tap.partition("/")[0]
    fitting = [test for test in of_rung if fnmatchcase(tap, test.name) or test.name == component]
    # The longest name says the most of where it is.
    best = max(fitting, key=lambda test: (test.name == tap, len(test.name)), default=None)
    return best.max_abs_difference if best is not None else 0.0
