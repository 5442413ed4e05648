"""Reads traces; errors name the file and the key."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from fastvideo.errors import InvalidField
from fastvideo.model.documents import InvalidDocument, parse, read_document
from fastvideo.simulation.arrivals import Recordings, parse_shape
from fastvideo.simulation.models import SimulatedModels
from fastvideo.simulation.recorded import read_recording
from fastvideo.simulation.trace import (
    AtOnce,
    Bursts,
    ClassTrace,
    Daily,
    Poisson,
    PoolTrace,
    Recorded,
    Trace,
)

WORKERS_MAX: Final = 1_000
_SHARES: Final = ("duplicate_report", "late_report", "failing_unit", "failing_loop")

Problem = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A trace with all that it names: its models and its recordings."""

    # The name of its file, and what `fastvideo simulate` is given to run it again.
    source: str
    arguments: str
    trace: Trace
    models: SimulatedModels
    recordings: Recordings


def read_scenario(path: Path, changes: Sequence[str] = ()) -> Scenario:
    """The scenario of a YAML file, with some of its values changed.

    A change is "key=value", such as "pools.gpu.count=8"; the value is YAML. Raises
    InvalidDocument naming the file and each key that is at fault.
    """
    try:
        document = read_document(path)
    except OSError as error:
        raise InvalidDocument(path.name, {"file": f"cannot be read: {error.strerror}"}) from error
    for change in changes:
        _change(document, change, path.name)
    try:
        trace = parse(Trace, document, path.name)
    except InvalidField as error:
        # A knob of the policy checks itself.
        raise InvalidDocument(path.name, {f"policy.{error.field}": error.message}) from error
    arguments = " ".join([shlex.quote(str(path)), *(f"--set {shlex.quote(c)}" for c in changes)])
    return scenario(trace, path.name, path.parent, arguments)


def scenario(
    trace: Trace, source: str = "trace", folder: Path = Path(), arguments: str = ""
) -> Scenario:
    """The scenario of a trace; recordings lie in the folder. Raises InvalidDocument."""
    models = SimulatedModels(trace.models, source)
    problems = dict(_problems(trace, models))
    if problems:
        raise InvalidDocument(source, problems)
    files = {
        kind.file
        for given in trace.classes.values()
        for kind in given.arrivals
        if isinstance(kind, Recorded)
    }
    recordings = {name: read_recording(folder / name) for name in sorted(files)}
    return Scenario(source, arguments or source, trace, models, recordings)


def _change(document: dict[str, Any], change: str, source: str) -> None:
    key, equals, text = change.partition("=")
    *path, last = key.split(".")
    if not equals or not last:
        raise InvalidDocument(source, {change: 'is not of the form "key=value"'})
    place: Any = document
    for part in path:
        place = place.setdefault(part, {}) if isinstance(place, dict) else _at(place, part)
        if not isinstance(place, dict | list):
            raise InvalidDocument(source, {key: f"{part!r} holds nothing that can be changed"})
    value = yaml.safe_load(text)
    if isinstance(place, list) and last.isdigit() and int(last) < len(place):
        place[int(last)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise InvalidDocument(source, {key: f"{last!r} is no place in a list"})


def _at(place: Any, part: str) -> Any:
    return place[int(part)] if part.isdigit() and int(part) < len(place) else None


def _problems(trace: Trace, models: SimulatedModels) -> Iterator[Problem]:
    if trace.duration_s <= 0:
        yield "duration_s", f"is {trace.duration_s}; more than 0"
    if not 0 <= trace.noise < 1:
        yield "noise", f"is {trace.noise}; at least 0 and less than 1"
    workers = sum(pool.count for pool in trace.pools.values())
    if not 1 <= workers <= WORKERS_MAX:
        yield "pools", f"have {workers} workers; 1 to {WORKERS_MAX}"
    if not trace.classes:
        yield "classes", "there is none"
    for name, pool in trace.pools.items():
        yield from _pool(f"pools.{name}", pool, trace)
    served = {model for pool in trace.pools.values() for model in pool.models}
    for name, given in trace.classes.items():
        yield from _class(f"classes.{name}", given, trace, models, served)
    for share in _SHARES:
        value = getattr(trace.faults, share)
        if not 0 <= value <= 1:
            yield f"faults.{share}", f"is {value}; 0 to 1"
    for name in ("worker_loss", "pause", "slow_worker", "stream_break", "drain"):
        fault = getattr(trace.faults, name)
        if fault is not None and fault.every_s <= 0:
            yield f"faults.{name}.every_s", f"is {fault.every_s}; more than 0"
    for name in ("scheduler_switch", "clock_jump"):
        fault = getattr(trace.faults, name)
        if fault is not None and fault.every_s <= 0:
            yield f"faults.{name}.every_s", f"is {fault.every_s}; more than 0"


def _pool(key: str, pool: PoolTrace, trace: Trace) -> Iterator[Problem]:
    if pool.count < 0:
        yield f"{key}.count", f"is {pool.count}; at least 0"
    for model in pool.models:
        if model not in trace.models:
            yield f"{key}.models", f"{model!r} is none of {', '.join(trace.models)}"
    if not pool.speeds or min(pool.speeds) <= 0:
        yield f"{key}.speeds", "each is more than 0, and there is at least one"
    if pool.compute_slots < 1:
        yield f"{key}.compute_slots", f"is {pool.compute_slots}; at least 1"
    if pool.io_slots < 1:
        yield f"{key}.io_slots", f"is {pool.io_slots}; at least 1"


def _class(
    key: str, given: ClassTrace, trace: Trace, models: SimulatedModels, served: set[str]
) -> Iterator[Problem]:
    if given.model not in trace.models:
        yield f"{key}.model", f"{given.model!r} is none of {', '.join(trace.models)}"
        return
    if given.model not in served:
        yield f"{key}.model", f"no pool has {given.model!r}"
    known = models.programs(given.model)
    if given.program and given.program not in known:
        yield f"{key}.program", f"{given.program!r} is none of {', '.join(known)}"
    for name in ("tenants", "steps", "shapes", "guidance_scales"):
        if not getattr(given, name):
            yield f"{key}.{name}", "names at least one"
    if given.steps and min(given.steps) < 1:
        yield f"{key}.steps", "each is at least 1"
    if not 0 <= given.cancelled <= 1:
        yield f"{key}.cancelled", f"is {given.cancelled}; 0 to 1"
    for shape in given.shapes:
        try:
            parse_shape(shape)
        except ValueError:
            yield f"{key}.shapes", f'{shape!r} is not of the form "832x480x81"'
    for index, kind in enumerate(given.arrivals):
        fault = _arrivals_fault(kind)
        if fault:
            yield f"{key}.arrivals.{index}", fault


def _arrivals_fault(kind: object) -> str:
    match kind:
        case Poisson() if kind.per_s <= 0:
            return f"per_s is {kind.per_s}; more than 0"
        case Bursts() if kind.every_s <= 0 or kind.size < 1 or kind.spread_s < 0:
            return "every_s is more than 0, size at least 1, spread_s at least 0"
        case Daily() if not 0 <= kind.per_s_low <= kind.per_s_high or kind.period_s <= 0:
            return "per_s_low is at most per_s_high and neither below 0, period_s more than 0"
        case AtOnce() if kind.count < 1 or kind.at_s < 0:
            return "count is at least 1 and at_s at least 0"
        case Recorded() if kind.speed <= 0:
            return f"speed is {kind.speed}; more than 0"
        case _:
            return ""
