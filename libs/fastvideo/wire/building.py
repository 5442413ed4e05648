"""From a message to its dataclass.

Reading a log means building millions of small objects, so that what a field costs counts: the
builder of a class is one function, written out field by field and compiled once, as `dataclasses`
does with `__init__`. Written by hand it would look the same.
"""

import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final

from google.protobuf.message import Message

from fastvideo.errors import InvalidField
from fastvideo.wire.shapes import (
    enum_members,
    fields,
    is_map,
    is_union,
    message_class,
    per_type,
    strip_none,
)

Build = Callable[[Any], Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Of the first and of the last moment that a datetime can say.
_SECONDS_MIN: Final = -62_135_596_800
_SECONDS_MAX: Final = 253_402_300_799


@per_type
def builder(cls: Any) -> Build:
    """The function that makes the dataclass of a message."""
    descriptor = message_class(cls).DESCRIPTOR
    # What the written function refers to, by name.
    scope: dict[str, Any] = {"cls": cls}
    values = {
        name: _expression(descriptor, name, hint, scope) for name, hint in fields(cls).items()
    }
    if _is_plain(cls):
        scope["Draft"] = type(f"{cls.__name__}Draft", (), {"__slots__": cls.__slots__})
        lines = ["o = Draft()", *(f"o.{name} = {value}" for name, value in values.items())]
        lines += ["o.__class__ = cls", "return o"]
    else:
        given = ", ".join(f"{name}={value}" for name, value in values.items())
        lines = [f"return cls({given})"]
    source = "\n    ".join(["def build(m):", *lines])
    exec(compile(source, f"<wire {cls.__name__}>", "exec"), scope)
    build: Build = scope["build"]
    return build


def _is_plain(cls: Any) -> bool:
    """Whether `__init__` does nothing but set the slots.

    Of a frozen dataclass it does so through `object.__setattr__`, at several times the cost of
    setting them; objects of such classes are drafted in a class of the same slots, not frozen, and
    become frozen by a change of class.
    """
    slots = cls.__dict__.get("__slots__")
    return (
        cls.__bases__ == (object,)
        and not hasattr(cls, "__post_init__")
        and slots is not None
        and tuple(slots) == tuple(fields(cls))
    )


def _expression(descriptor: Any, name: str, hint: Any, scope: dict[str, Any]) -> str:
    """The value of a field of the message `m`; what it needs goes into the scope."""
    if name in descriptor.oneofs_by_name:
        scope[f"one_{name}"] = _oneof(descriptor.name, name, typing.get_args(hint))
        return f"one_{name}(m)"
    field = descriptor.fields_by_name[name]
    get = f"get_{name}"
    if is_map(field):
        value = field.message_type.fields_by_name["value"]
        scope[get] = _map_of(_converter(value, typing.get_args(hint)[1]))
        return f"{get}(m.{name})"
    if field.is_repeated:
        convert = _put(scope, get, _converter(field, typing.get_args(hint)[0]))
        each = "r" if convert is None else f"map({get}, r)"
        return f"tuple({each}) if (r := m.{name}) else ()"
    hint, optional = strip_none(hint)
    convert = _put(scope, get, _converter(field, hint))
    value = f"m.{name}" if convert is None else f"{get}(m.{name})"
    if optional:
        return f'{value} if m.HasField("{name}") else None'
    if field.message_type is None:
        return value
    scope[f"absent_{name}"] = _absent(descriptor.name, name)
    return f'{value} if m.HasField("{name}") else absent_{name}()'


def _put(scope: dict[str, Any], name: str, convert: Build | None) -> Build | None:
    """Put a converter into a scope; one that is made later then takes its place there."""
    scope[name] = convert
    if isinstance(convert, _Later):
        convert.replace = partial(scope.__setitem__, name)
    return convert


def _converter(field: Any, hint: Any) -> Build | None:
    """What makes the dataclass's value of one of the message's; None where both are the same."""
    if field.enum_type is not None:
        return _Members(field, hint).__getitem__
    if field.message_type is None:
        return None
    if field.message_type.full_name == "google.protobuf.Timestamp":
        return _moment(field)
    if is_union(hint):
        owner, oneof = field.message_type.name, field.message_type.oneofs[0].name
        return _oneof(owner, oneof, typing.get_args(hint))
    return _Later(hint)


class _Later:
    """The builder of a class, made when it is first needed: a message may hold its own kind.

    `replace` puts the made one where this one is called from.
    """

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self.replace: Callable[[Build], None] = _ignore

    def __call__(self, message: Message) -> Any:
        build = builder(self._cls)
        self.replace(build)
        return build(message)


def _ignore(_build: Build) -> None:
    """For a caller that asks each time."""


def _absent(owner: str, name: str) -> Callable[[], Any]:
    def refuse() -> Any:
        raise InvalidField(f"{owner}.{name}", None, "a value", reason="FIELD_REQUIRED")

    return refuse


def _oneof(owner: str, name: str, hints: Iterable[Any]) -> Build:
    """By the member that is set."""
    classes = {hint.__name__: hint for hint in hints if hint is not type(None)}
    optional = type(None) in hints
    # Field to builder, made when the member first occurs.
    builders: dict[str, Build] = {}

    def build(message: Message) -> Any:
        chosen = message.WhichOneof(name)
        if chosen is None:
            if optional:
                return None
            raise InvalidField(f"{owner}.{name}", None, f"one of {', '.join(classes)}")
        inner = getattr(message, chosen)
        make = builders.get(chosen)
        if make is None:
            make = builders[chosen] = builder(classes[inner.DESCRIPTOR.name])
        return make(inner)

    return build


def _map_of(get: Build | None) -> Build:
    """A dict in the order of its keys: protobuf's order is another one in each process."""

    def build(items: Mapping[Any, Any]) -> dict[Any, Any]:
        if not items:
            return {}
        if get is None:
            return dict(sorted(items.items()))
        return {key: get(items[key]) for key in sorted(items)}

    return build


def _moment(field: Any) -> Callable[[Any], datetime]:
    path = f"{field.containing_type.name}.{field.name}"

    def convert(value: Any) -> datetime:
        seconds, nanos = value.seconds, value.nanos
        if not (_SECONDS_MIN <= seconds <= _SECONDS_MAX and 0 <= nanos < 1_000_000_000):
            raise InvalidField(path, seconds, "a time of the years 1 to 9999")
        return _EPOCH + timedelta(0, seconds, nanos // 1_000)

    return convert


class _Members(dict[int, StrEnum]):
    """Number to member of an enum; one that it has not is refused."""

    def __init__(self, field: Any, hint: type[StrEnum]) -> None:
        super().__init__(enum_members(hint, field.enum_type))
        self._path = f"{field.containing_type.name}.{field.name}"

    def __missing__(self, number: int) -> StrEnum:
        raise InvalidField(self._path, number, ", ".join(self.values()))
