"""Authoring files: YAML documents that are read strictly into frozen dataclasses."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from fastvideo.errors import ContractViolation

T = TypeVar("T")


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
    return parse_document(path.read_text(encoding="utf-8"), path.name)


def parse_document(text: str, source: str) -> dict[str, Any]:
    """The mapping that YAML, which came from `source`, holds. Raises as `read_document` does."""
    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidDocument(source, {"yaml": str(error)}) from error
    if not isinstance(loaded, dict):
        raise InvalidDocument(source, {"yaml": "the document must be a mapping"})
    return loaded


def parse(cls: type[T], data: Mapping[str, Any], source: str) -> T:
    """A dataclass of plain data; nothing is coerced, nothing unknown is passed over.

    Raises InvalidDocument naming the file and each key that is at fault.
    """
    try:
        parsed: dict[str, T] = _adapter(cls).validate_json(json.dumps({"": data}), strict=True)
    except (ValidationError, TypeError) as error:
        raise InvalidDocument(source, _problems(error)) from error
    return parsed[""]


def _per_type(make: Callable[[Any], TypeAdapter[Any]]) -> Callable[[Any], TypeAdapter[Any]]:
    """Make once for each type."""
    return cache(make)


@_per_type
def _adapter(cls: Any) -> TypeAdapter[Any]:
    # A configuration reaches dataclasses only through a container.
    return TypeAdapter(dict[str, cls], config=ConfigDict(extra="forbid"))


def _problems(error: ValidationError | TypeError) -> dict[str, str]:
    if isinstance(error, TypeError):
        return {"yaml": f"the document holds a value that is not plain data: {error}"}
    problems = {}
    for fault in error.errors():
        unknown = fault["type"] == "unexpected_keyword_argument"
        key = ".".join(str(part) for part in fault["loc"][1:])
        problems[key] = "unknown field" if unknown else fault["msg"]
    return problems
