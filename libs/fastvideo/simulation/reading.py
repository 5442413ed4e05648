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
from fastvideo.simulation.bounds import Problem, number_problems, work_problems
from fastvideo.simulation.models import SimulatedModels
from fastvideo.simulation.recorded import read_recording
from fastvideo.simulation.trace import AtOnce, ClassTrace, Daily, PoolTrace, Recorded, Trace

WORKERS_MAX: Final = 1_000


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
    counts = {name: len(lines) for name, lines in recordings.items()}
    problems = dict(work_problems(trace, counts)) | dict(_unplayed(trace, models, recordings))
    if problems:
        raise InvalidDocument(source, problems)
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
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidDocument(source, {key: f"{text!r} is not YAML: {error}"}) from error
    if isinstance(place, list) and last.isdigit() and int(last) < len(place):
        place[int(last)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise InvalidDocument(source, {key: f"{last!r} is no place in a list"})


def _at(place: Any, part: str) -> Any:
    return place[int(part)] if part.isdigit() and int(part) < len(place) else None


def _problems(trace: Trace, models: SimulatedModels) -> Iterator[Problem]:
    yield from number_problems(trace)
    if trace.noise >= 1:
        yield "noise", f"is {trace.noise}; less than 1"
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


def _pool(key: str, pool: PoolTrace, trace: Trace) -> Iterator[Problem]:
    for model in pool.models:
        if model not in trace.models:
            yield f"{key}.models", f"{model!r} is none of {', '.join(trace.models)}"
    if not pool.speeds:
        yield f"{key}.speeds", "names at least one"


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
    for shape in given.shapes:
        try:
            parse_shape(shape)
        except ValueError:
            yield f"{key}.shapes", f'{shape!r} is not of the form "832x480x81"'
    for index, kind in enumerate(given.arrivals):
        fault = _arrivals_fault(kind)
        if fault:
            yield f"{key}.arrivals.{index}", fault


def _unplayed(trace: Trace, models: SimulatedModels, recordings: Recordings) -> Iterator[Problem]:
    """Recordings without a request of the model that is to play them."""
    for name, given in trace.classes.items():
        for index, kind in enumerate(given.arrivals):
            if isinstance(kind, Recorded) and not models.played(given.model, recordings[kind.file]):
                found = sorted({line.model_id for line in recordings[kind.file]})
                fault = f"{kind.file} has requests of {', '.join(found) or 'nothing'}"
                yield f"classes.{name}.arrivals.{index}", f"{fault}; none of {given.model!r}"


def _arrivals_fault(kind: object) -> str:
    match kind:
        case Daily() if kind.per_s_low > kind.per_s_high:
            return "per_s_low is at most per_s_high"
        case AtOnce() if kind.count < 1:
            return f"count is {kind.count}; at least 1"
        case _:
            return ""
