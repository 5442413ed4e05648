"""Secrets out of what is written down: logs, span attributes, error messages."""

import re
from collections.abc import Mapping
from functools import lru_cache

REDACTED = "[redacted]"

_SECRET_NAMES = frozenset(
    {
        "api_key",
        "apikey",
        "authorization",
        "cookie",
        "credentials",
        "dsn",
        "passwd",
        "password",
        "private_key",
        "secret",
        "token",
    }
)
_SECRET_SUFFIXES = ("_api_key", "_dsn", "_key_id", "_password", "_secret", "_secret_key", "_token")
# The password of scheme://user:password@host, up to the last "@" before the path. Only the
# start of a word is tried, and without giving back: a word of a million letters costs its length,
# not its square.
_URL_PASSWORD = re.compile(r"(?P<head>(?<![\w+.-])[\w+.-]++://[^\s:/@]*+:)[^\s/]+(?=@)")
# The password of "host=db password=hunter2" and of "?password=hunter2&".
_PAIR_PASSWORD = re.compile(
    r"(?P<head>\b(?:password|passwd|api_key|secret|token)=)[^\s&;,]+", re.IGNORECASE
)
_BEARER = re.compile(r"(?P<head>\b(?:bearer|basic)\s+)[\w.~+/=-]{4,}", re.IGNORECASE)
_BEARER_CHARACTERS_MIN = len("basic abcd")
# The secret of "fv_ak_01jd..._secret", and all of a key that was cut or is of another form.
_API_KEY = re.compile(r"(?P<head>(?<![A-Za-z0-9])fv_(?:ak_[0-9a-z]{26}_)?)[\w-]{24,}", re.ASCII)
# Deeper values are cut, so that a value that holds itself cannot loop.
_DEPTH_MAX = 8


@lru_cache(maxsize=1_024)
def is_secret(name: str) -> bool:
    """Whether a value under this name must never be written down."""
    plain = name.lower().replace("-", "_")
    return plain in _SECRET_NAMES or plain.endswith(_SECRET_SUFFIXES)


def redact_text(text: str) -> str:
    """The text without passwords of URLs, key=value pairs, authorization headers and API keys."""
    # Most texts are short names, on the path of every step: each pattern has its sign.
    if "://" in text:
        text = _URL_PASSWORD.sub(rf"\g<head>{REDACTED}", text)
    if "=" in text:
        text = _PAIR_PASSWORD.sub(rf"\g<head>{REDACTED}", text)
    if "fv_" in text:
        text = _API_KEY.sub(rf"\g<head>{REDACTED}", text)
    if len(text) >= _BEARER_CHARACTERS_MIN:
        text = _BEARER.sub(rf"\g<head>{REDACTED}", text)
    return text


def redact(value: object, name: str = "", depth: int = 0) -> object:
    """The value with every secret inside it replaced; containers are copied."""
    if name and is_secret(name):
        return REDACTED
    if isinstance(value, str):
        return redact_text(value)
    if depth >= _DEPTH_MAX:
        return f"[deeper than {_DEPTH_MAX}]"
    if isinstance(value, Mapping):
        return {key: redact(item, str(key), depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(item, "", depth + 1) for item in value]
    return value
