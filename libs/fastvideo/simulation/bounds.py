"""Which numbers a trace may hold: every one is finite and in its range, and the work has an end.

Fields of one name mean one thing wherever they are, so ranges go by name.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.simulation.trace import AtOnce, Bursts, Daily, Poisson, Recorded, Trace

Problem = tuple[str, str]
"""The key that is at fault, and the fault."""

REQUESTS_MAX: Final = 1_000_000
FAULTS_MAX: Final = 100_000
# Three years, in which moments are moments.
_SECONDS_MAX: Final = 1e8
_NUMBER_MAX: Final = 1e15
COUNT_MAX: Final = 100_000
"""Units of one loop, and pixels or frames in one direction."""
_COUNTS: Final = frozenset(["steps", "units", "width", "height", "num_frames"])

_ABOVE_ZERO: Final = frozenset(
    [
        "duration_s",
        "per_s",
        "per_s_high",
        "every_s",
        "period_s",
        "deadline_s",
        "speed",
        "speeds",
        "factor",
    ]
)
_ONE_OR_MORE: Final = frozenset(
    ["steps", "compute_slots", "io_slots", "max_batch", "size", "width", "height", "num_frames"]
)
_SHARES: Final = frozenset(
    ["cancelled", "silent", "duplicate_report", "late_report", "failing_unit", "failing_loop"]
)
_SIGNED: Final = frozenset(["priority", "by_s"])
# From the least to the most.
_RANGES: Final = frozenset(
    [
        "cancelled_after_s",
        "delay_s",
        "redial_s",
        "back_after_s",
        "for_s",
        "factor",
        "away_s",
        "by_s",
    ]
)


def number_problems(part: Any, key: str = "") -> Iterator[Problem]:
    """Every number of a trace, or of a part, that cannot be meant. A policy checks itself."""
    if isinstance(part, SchedulingPolicy):
        return
    for field in fields(part):
        yield from _value(f"{key}.{field.name}".removeprefix("."), field.name, part)


def work_problems(trace: Trace, recorded: Mapping[str, int]) -> Iterator[Problem]:
    """What would never come to an end, with how many requests each recording has."""
    requests = sum(
        _requests(kind, trace.duration_s, recorded)
        for given in trace.classes.values()
        for kind in given.arrivals
    )
    if requests > REQUESTS_MAX:
        yield "classes", f"about {requests:.0f} requests would come; at most {REQUESTS_MAX}"
    for field in fields(trace.faults):
        every_s = getattr(getattr(trace.faults, field.name), "every_s", math.inf)
        if trace.duration_s > FAULTS_MAX * every_s:
            fault = f"is {every_s:g}; at most {FAULTS_MAX} happen in duration_s"
            yield f"faults.{field.name}.every_s", fault


def _requests(kind: object, duration_s: float, recorded: Mapping[str, int]) -> float:
    match kind:
        case Poisson():
            return kind.per_s * duration_s
        case Bursts():
            return kind.size * (1 + duration_s / kind.every_s)
        case Daily():
            # All of the highest rate are drawn before some are left out.
            return kind.per_s_high * duration_s
        case AtOnce():
            return kind.count
        case Recorded():
            return recorded.get(kind.file, 0)
        case _:
            return 0


def _value(key: str, name: str, owner: Any) -> Iterator[Problem]:
    value = getattr(owner, name)
    if name in _RANGES and isinstance(value, tuple) and value[0] > value[1]:
        yield key, f"is from {value[0]:g} to {value[1]:g}; the least comes first"
    yield from _inside(key, name, value)


def _inside(key: str, name: str, value: Any) -> Iterator[Problem]:
    if is_dataclass(value):
        yield from number_problems(value, key)
    elif isinstance(value, Mapping):
        for inner, one in value.items():
            yield from _inside(f"{key}.{inner}", name, one)
    elif isinstance(value, tuple):
        for index, one in enumerate(value):
            yield from _inside(f"{key}.{index}", name, one)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        fault = _fault(name, value)
        if fault:
            yield key, f"is {value}; {fault}"


def _fault(name: str, value: float) -> str:
    if not math.isfinite(value):
        return "a finite number"
    if name in _SHARES:
        return "" if 0 <= value <= 1 else "0 to 1"
    if name in _ABOVE_ZERO and value <= 0:
        return "more than 0"
    if name in _ONE_OR_MORE and value < 1:
        return "at least 1"
    if name not in _SIGNED and value < 0:
        return "at least 0"
    most = _SECONDS_MAX if name.endswith("_s") else _NUMBER_MAX
    most = COUNT_MAX if name in _COUNTS else most
    return "" if abs(value) <= most else f"at most {most:g}"
