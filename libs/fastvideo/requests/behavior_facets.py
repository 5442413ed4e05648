"""Every field of a record of behaviour as words that an index can look up.

A word is "field=value". A field that holds several values has a word for each; a map has
"field=key=value", as has a field of a nested record. So one index answers for any field, and a
question is a set of words that a record must have.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastvideo.errors import InvalidField
from fastvideo.requests.behavior import BehaviorRecord

FIELDS: Final = ("behavior_id", *(field.name for field in dataclasses.fields(BehaviorRecord)))
"""What may be asked for."""

CONDITIONS_MAX: Final = 16

_REAL: Final = frozenset({"noise_level", "scheduler_trajectory", "timesteps", "logprobs"})
_WHOLE: Final = frozenset({"seeds", "sample_index", "attempt", "action_tokens", "sampled_tokens"})
_MAPS: Final = frozenset(
    {
        "adapter_versions",
        "guidance_settings",
        "reward_inputs",
        "reward_outputs",
        "cache_assumptions",
        "parallel_plan",
        "deterministic_flags",
        "fingerprint",
    }
)
# An index takes no word of any length.
_CHARACTERS_MAX: Final = 500


def facets_of(behavior_id: str, record: BehaviorRecord) -> tuple[str, ...]:
    """The words of a record, sorted, each once."""
    words = {_word("behavior_id", behavior_id)}
    for field in dataclasses.fields(record):
        words.update(_words(field.name, getattr(record, field.name)))
    return tuple(sorted(words))


def wanted_facets(where: Mapping[str, str]) -> tuple[str, ...]:
    """The words that a record must have to be let through, sorted.

    Raises InvalidField for a field that there is not, a value that it cannot have, and too many.
    """
    if len(where) > CONDITIONS_MAX:
        raise InvalidField("where", len(where), f"at most {CONDITIONS_MAX} conditions")
    return tuple(sorted(_word(name, _written(name, value)) for name, value in where.items()))


def _words(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, tuple):
        for item in value:
            yield from _words(name, item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _words(f"{name}={key}", item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _words(f"{name}={field.name}", getattr(value, field.name))
    else:
        yield _word(name, _text(value))


def _written(name: str, value: str) -> str:
    """A value as `_text` writes it."""
    path = f"where[{name}]"
    if name not in FIELDS:
        raise InvalidField(path, value, f"a field of the record: {', '.join(FIELDS)}")
    if name in _MAPS:
        key, equals, item = value.partition("=")
        if not equals:
            raise InvalidField(path, value, '"key=value", one that the field holds')
        return f"{key}={_real(path, item)}" if name == "reward_outputs" else value
    if name in _REAL:
        return _real(path, value)
    if name in _WHOLE:
        try:
            return str(int(value))
        except ValueError as error:
            raise InvalidField(path, value, "a whole number") from error
    return value


def _real(path: str, value: str) -> str:
    try:
        return repr(float(value))
    except ValueError as error:
        raise InvalidField(path, value, "a number") from error


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    return str(value)


def _word(name: str, value: str) -> str:
    word = f"{name}={value}".replace("\0", " ")
    if len(word) <= _CHARACTERS_MAX:
        return word
    return f"{name[:100]}=sha256:{hashlib.sha256(word.encode()).hexdigest()}"
