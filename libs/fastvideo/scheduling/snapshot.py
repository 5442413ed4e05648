"""The whole state of a core at one moment: taken, written down, and put back.

Taking copies what changes and shares what does not, so that it costs little and the rest, the
encoding, can happen elsewhere. The encoding names every class that occurs with its fields: bytes
of a program whose classes differ are refused, never misread, so a snapshot is a cache that the
log can replace. What an object can make anew from the rest it names in its class's `DERIVED`;
what two cores that agree may differ in, in `INCIDENTAL`.

A new field of a dataclass in the state needs nothing here. A change of what a field means, or of
how the state follows from the log, needs a new `EVOLVER_VERSION`; one of these bytes, a new
`FORMAT`.
"""

import hashlib
import importlib
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Any, Final, TypeVar

from fastvideo.errors import ContractViolation, FailedPrecondition, FastVideoError
from fastvideo.scheduling.evolve import EVOLVER_VERSION

FORMAT: Final = 1
"""Rises when the encoding changes."""

_PACKAGE: Final = "fastvideo."
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_ATOMS: Final = frozenset({str, int, float, bool, type(None)})


R = TypeVar("R")


def _per_class(make: Callable[[Any], R]) -> Callable[[Any], R]:
    """Find out once for each class."""
    return cache(make)


@dataclass(frozen=True, slots=True)
class SchedulerSnapshot:
    """The saved attributes of a state, by name; nothing in it changes any more."""

    values: Mapping[str, Any]

    def encode(self) -> bytes:
        """Bytes that `decode` reads. They are no secret and hold prompts."""
        writer = _Writer(expand=False)
        root = writer.write(dict(self.values))
        document = {
            "format": FORMAT,
            "evolver": EVOLVER_VERSION,
            "classes": writer.classes,
            "root": root,
        }
        return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 1)

    @classmethod
    def decode(cls, data: bytes) -> "SchedulerSnapshot":
        """The snapshot that the bytes hold.

        Raises FailedPrecondition with the reason SNAPSHOT_UNREADABLE when they are damaged or
        of a program whose state looks otherwise.
        """
        try:
            document = json.loads(zlib.decompress(data))
            if document["format"] != FORMAT:
                raise _unreadable(f"its format is {document['format']}, ours {FORMAT}")
            if document["evolver"] != EVOLVER_VERSION:
                raise _unreadable(f"it was folded by {document['evolver']}, not {EVOLVER_VERSION}")
            reader = _Reader([_known_class(*known) for known in document["classes"]])
            return cls(MappingProxyType(reader.read(document["root"])))
        except FastVideoError:
            raise
        except Exception as error:
            raise _unreadable(f"{type(error).__name__}: {error}") from error

    def digest(self) -> str:
        """SHA-256 over the values; equal for cores that will decide alike."""
        root = _Writer(expand=True).write(dict(self.values))
        return hashlib.sha256(json.dumps(root, separators=(",", ":")).encode()).hexdigest()


def take(state: Any) -> SchedulerSnapshot:
    """A snapshot of an object with attributes.

    Raises ContractViolation for an attribute that is neither data nor named in `DERIVED`.
    """
    return SchedulerSnapshot(MappingProxyType(_copy_attributes(state)))


def put_back(target: Any, values: Mapping[str, Any]) -> None:
    """Give an object, fresh from its maker, the attributes of a snapshot."""
    for name, value in values.items():
        if isinstance(value, _Part):
            put_back(getattr(target, name), value.values)
        else:
            # A copy: the snapshot may be put back more than once.
            setattr(target, name, _copy(value, type(target).__name__, name))
    rebuild = getattr(target, "rebuild", None)
    if rebuild is not None:
        rebuild()


@dataclass(frozen=True, slots=True)
class _Part:
    """The attributes of an object that its maker makes, such as a cost model."""

    values: Mapping[str, Any]


# -- taking ------------------------------------------------------------------------------


def _copy(value: Any, owner: str, name: str) -> Any:
    cls = type(value)
    if cls in _ATOMS:
        return value
    if cls is dict:
        return {key: _copy(inner, owner, name) for key, inner in value.items()}
    if cls is list:
        return [_copy(inner, owner, name) for inner in value]
    if _is_value(cls):
        return value
    if is_dataclass(cls):
        copied = object.__new__(cls)
        for attribute in _saved(cls):
            inner = _copy(getattr(value, attribute), cls.__name__, attribute)
            object.__setattr__(copied, attribute, inner)
        for attribute in derived(cls):
            object.__setattr__(copied, attribute, None)
        return copied
    if cls is _Part or (cls.__module__.startswith(_PACKAGE) and hasattr(cls, "DERIVED")):
        return _Part(_copy_attributes(value))
    raise ContractViolation(
        f"{owner}.{name} holds a {cls.__name__}, which no snapshot can hold; "
        f"let {owner}.DERIVED name it",
        subject=name,
    )


def _copy_attributes(value: Any) -> dict[str, Any]:
    cls = type(value)
    return {
        name: _copy(getattr(value, name), cls.__name__, name)
        for name in _attributes(value)
        if name not in derived(cls)
    }


def _attributes(value: Any) -> tuple[str, ...]:
    return _saved(type(value)) if is_dataclass(value) else tuple(vars(value))


@_per_class
def _is_value(cls: type) -> bool:
    """Whether instances never change: frozen dataclasses, enums, tuples, moments, mappings."""
    if is_dataclass(cls):
        return bool(cls.__dataclass_params__.frozen)  # type: ignore[attr-defined]
    return issubclass(cls, tuple | StrEnum | datetime | frozenset | MappingProxyType)


@_per_class
def derived(cls: type) -> frozenset[str]:
    """The attributes that are not saved."""
    return frozenset(getattr(cls, "DERIVED", ()))


@_per_class
def _incidental(cls: type) -> frozenset[str]:
    return frozenset(getattr(cls, "INCIDENTAL", ()))


@_per_class
def _saved(cls: type) -> tuple[str, ...]:
    """The fields that are saved, in order."""
    if not is_dataclass(cls):
        return tuple(getattr(cls, "_fields", ()))
    return tuple(field.name for field in fields(cls) if field.name not in derived(cls))


# -- writing -----------------------------------------------------------------------------


class _Writer:
    """Values as JSON: atoms as they are, everything else as a list that begins with a tag.

    An object that occurs again is written once, unless all is to be spelled out (`expand`), as
    for a digest, which must not tell equal objects from the same one.
    """

    def __init__(self, *, expand: bool) -> None:
        self.classes: list[tuple[str, str, tuple[str, ...]]] = []
        self._expand = expand
        self._numbers: dict[type, int] = {}
        self._known: dict[int, int] = {}

    def write(self, value: Any) -> Any:
        cls = type(value)
        if cls in _ATOMS:
            return value
        if cls is dict or cls is MappingProxyType:
            return ["d", *[[self.write(k), self.write(v)] for k, v in value.items()]]
        if cls is list:
            return ["l", *[self.write(inner) for inner in value]]
        if cls is tuple:
            return ["t", *[self.write(inner) for inner in value]]
        if issubclass(cls, datetime):
            return ["m", (value - _EPOCH) // _MICROSECOND]
        if issubclass(cls, StrEnum):
            return ["e", self._number(cls), value.value]
        return self._object(cls, value)

    def _object(self, cls: type, value: Any) -> Any:
        again = self._known.get(id(value))
        if again is not None:
            return ["r", again]
        names = _saved(cls)
        if self._expand:
            names = tuple(name for name in names if name not in _incidental(cls))
        written = [self._number(cls), *[self.write(getattr(value, name)) for name in names]]
        if not self._expand:
            self._known[id(value)] = len(self._known)
        return written

    def _number(self, cls: type) -> int:
        number = self._numbers.get(cls)
        if number is None:
            number = self._numbers[cls] = len(self._numbers)
            self.classes.append((cls.__module__, cls.__qualname__, _saved(cls)))
        return number


# -- reading -----------------------------------------------------------------------------


def _known_class(module: str, name: str, names: list[str]) -> type:
    """The class of this program, if it looks as the snapshot says."""
    if not module.startswith(_PACKAGE):
        raise _unreadable(f"it names {module}")
    found: Any = getattr(importlib.import_module(module), name, None)
    plain = isinstance(found, type) and (
        is_dataclass(found) or issubclass(found, tuple) or issubclass(found, StrEnum)
    )
    if not plain or list(_saved(found)) != names:
        raise _unreadable(f"{name} looked otherwise")
    cls: type = found
    return cls


class _Reader:
    def __init__(self, classes: list[type]) -> None:
        self._classes = classes
        self._known: list[Any] = []

    def read(self, node: Any) -> Any:
        if type(node) is not list:
            return node
        tag = node[0]
        if type(tag) is int:
            return self._object(self._classes[tag], node)
        if tag == "d":
            return {self.read(key): self.read(value) for key, value in node[1:]}
        if tag == "l":
            return [self.read(inner) for inner in node[1:]]
        if tag == "t":
            return tuple([self.read(inner) for inner in node[1:]])
        if tag == "m":
            return _EPOCH + node[1] * _MICROSECOND
        if tag == "e":
            return self._classes[node[1]](node[2])
        if tag == "r":
            return self._known[node[1]]
        raise _unreadable(f"tag {tag!r}")

    def _object(self, cls: type, node: list[Any]) -> Any:
        values = [self.read(inner) for inner in node[1:]]
        if issubclass(cls, tuple):
            made: Any = cls(*values)
        else:
            made = object.__new__(cls)
            for name, value in zip(_saved(cls), values, strict=True):
                object.__setattr__(made, name, value)
            for name in derived(cls):
                object.__setattr__(made, name, None)
        self._known.append(made)
        return made


def _unreadable(why: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"the snapshot cannot be read: {why}", reason="SNAPSHOT_UNREADABLE", subject="snapshot"
    )
