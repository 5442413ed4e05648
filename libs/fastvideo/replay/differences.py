"""Where two values of the same kind differ, field by field, in words for a person."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Final

WORDS_MAX: Final = 400


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs."""

    # Such as "decisions[1].window".
    path: str
    expected: str
    found: str


def differences(expected: Any, found: Any, path: str = "") -> Iterator[Difference]:
    """The fields in which two values differ, in order; none when they are equal."""
    if expected == found:
        return
    if type(expected) is type(found) and is_dataclass(expected):
        for field in fields(expected):
            before, now = getattr(expected, field.name), getattr(found, field.name)
            yield from differences(before, now, f"{path}.{field.name}" if path else field.name)
    elif isinstance(expected, Mapping) and isinstance(found, Mapping):
        for key in dict.fromkeys((*expected, *found)):
            yield from differences(expected.get(key), found.get(key), f"{path}[{key}]")
    elif isinstance(expected, tuple) and isinstance(found, tuple):
        for index in range(max(len(expected), len(found))):
            before = expected[index] if index < len(expected) else None
            now = found[index] if index < len(found) else None
            yield from differences(before, now, f"{path}[{index}]")
    else:
        yield Difference(path, words(expected), words(found))


def words(value: Any) -> str:
    """A value in short: of a dataclass its name and the fields that are set."""
    text = _words(value)
    return text if len(text) <= WORDS_MAX else f"{text[: WORDS_MAX - 1]}…"


def _words(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Enum):
        return str(value.value)
    if is_dataclass(value) and not isinstance(value, type):
        set_fields = (
            f"{field.name}={_words(getattr(value, field.name))}"
            for field in fields(value)
            if getattr(value, field.name) not in (None, "", (), 0, False, {})
        )
        return f"{type(value).__name__}({', '.join(set_fields)})"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_words, value))}]" if value else "nothing"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_words(inner)}' for key, inner in value.items())}}}"
    return str(value)
