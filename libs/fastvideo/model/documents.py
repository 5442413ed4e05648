"""Authoring files: YAML documents that are read strictly into frozen dataclasses."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from fastvideo.errors import ContractViolation, meant_name

T = TypeVar("T")

CHARACTERS_MAX: Final = 1_000_000
NODES_MAX: Final = 100_000
DEPTH_MAX: Final = 64
BRACKETS_MAX: Final = 256
# What constructors of the library raise for values that are not what their tag says.
_NOT_MADE: Final = (yaml.YAMLError, ValueError, TypeError, AttributeError, OverflowError)
"""The bounds of a document; the largest card of today has 600 values, 9 deep."""


class InvalidDocument(ContractViolation):
    """A card or program file is wrong; `subject` is "file: key", `problems` says each fault."""

    default_reason = "INVALID_DOCUMENT"

    def __init__(self, source: str, problems: Mapping[str, str]) -> None:
        lines = [f"{source}: {key}: {fault}" for key, fault in problems.items()]
        first = next(iter(problems), "")
        super().__init__("\n".join(lines), subject=f"{source}: {first}")
        self.source = source
        self.problems = dict(problems)


def read_document(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds.

    Raises InvalidDocument when it is not YAML, or no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidDocument(path.name, {"yaml": f"is not UTF-8: {error}"}) from error
    return parse_document(text, path.name)


def parse_document(text: str, source: str) -> dict[str, Any]:
    """The mapping that YAML, which came from `source`, holds. Raises as `read_document` does."""
    try:
        _check_shape(text)
        loaded = yaml.load(text, Loader=_Loader)
    except _NOT_MADE as error:
        raise InvalidDocument(source, {"yaml": str(error)}) from error
    if not isinstance(loaded, dict):
        raise InvalidDocument(source, {"yaml": "the document must be a mapping"})
    return loaded


# libyaml reads the same five times as fast; a build of the package without it has none.
_SafeLoader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):  # type: ignore[misc]
    """Safe, and bounded: what an alias stands for counts as often as it is named."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _size(node, {}) > NODES_MAX:
            raise ValueError(f"holds more than {NODES_MAX} values, aliases written out")
        return node


def _check_shape(text: str) -> None:
    """Raise ValueError for a text that no author writes, before anything is made of it."""
    if len(text) > CHARACTERS_MAX:
        raise ValueError(f"has more than {CHARACTERS_MAX} characters")
    if _brackets(text) > BRACKETS_MAX:
        raise ValueError(f"is deeper than {DEPTH_MAX}")
    depth = nodes = 0
    for event in yaml.parse(text, Loader=_SafeLoader):
        nodes += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX or nodes > NODES_MAX:
            raise ValueError(f"is deeper than {DEPTH_MAX} or holds more than {NODES_MAX} values")


def _brackets(text: str) -> int:
    """How deep brackets are nested at most, also those within quotes: a quick look."""
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node holds with its aliases written out. Raises ValueError for a circle."""
    size = known.get(id(node))
    if size is not None:
        if size == 0:
            raise ValueError("a value holds itself")
        return size
    known[id(node)] = 0
    size = 1
    if isinstance(node, yaml.MappingNode):
        _refuse_twins(node)
        size += sum(_size(key, known) + _size(value, known) for key, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        size += sum(_size(one, known) for one in node.value)
    known[id(node)] = size
    return size


def _refuse_twins(mapping: yaml.MappingNode) -> None:
    """Raise ValueError for a key that is given twice: nobody knows which one is meant."""
    seen = set()
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if (key.tag, key.value) in seen:
            raise ValueError(f"{key.value} is given twice, in line {key.start_mark.line + 1} again")
        seen.add((key.tag, key.value))


def parse(cls: type[T], data: Mapping[str, Any], source: str) -> T:
    """A dataclass of plain data; nothing is coerced, nothing unknown is passed over.

    Raises InvalidDocument naming the file and each key that is at fault.
    """
    try:
        parsed: dict[str, T] = _adapter(cls).validate_json(json.dumps({"": data}), strict=True)
    except (ValidationError, TypeError, ValueError) as error:
        raise InvalidDocument(source, _problems(error, cls)) from error
    return parsed[""]


def unknown_field(name: str, known: Iterable[str]) -> str:
    """What is told of a key that there is not, with the one that may be meant."""
    names = sorted(known)
    if meant := meant_name(name, names):
        return f"unknown field; did you mean {meant}?"
    return f"unknown field; known: {', '.join(names)}" if names else "unknown field"


def _per_type(make: Callable[[Any], TypeAdapter[Any]]) -> Callable[[Any], TypeAdapter[Any]]:
    """Make once for each type."""
    return cache(make)


@_per_type
def _adapter(cls: Any) -> TypeAdapter[Any]:
    # A configuration reaches dataclasses only through a container.
    return TypeAdapter(dict[str, cls], config=ConfigDict(extra="forbid"))


def _problems(error: ValidationError | TypeError | ValueError, cls: type) -> dict[str, str]:
    if not isinstance(error, ValidationError):
        return {"yaml": f"the document holds a value that is not plain data: {error}"}
    problems = {}
    for fault in error.errors():
        place = [str(part) for part in fault["loc"][1:]]
        told = fault["msg"]
        if fault["type"] == "unexpected_keyword_argument":
            told = unknown_field(place[-1], _fields_at(cls, place[:-1]))
        problems[".".join(place)] = told
    return problems


def _fields_at(hint: Any, place: Sequence[str]) -> Iterable[str]:
    """The fields of what a document has at a place; none where that is not one dataclass."""
    for part in place:
        if is_dataclass(hint):
            hint = get_type_hints(hint).get(part)
        elif get_args(hint):
            # Of a mapping the values, of a sequence what it holds.
            hint = next(one for one in reversed(get_args(hint)) if one is not Ellipsis)
        if isinstance(hint, UnionType) or get_origin(hint) is Union:
            hint = next((one for one in get_args(hint) if one is not NoneType), None)
    return [field.name for field in fields(hint)] if is_dataclass(hint) else []
