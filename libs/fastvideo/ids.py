"""Identifiers: a prefix that says what a thing is, and a part that sorts by time."""

import hashlib
import secrets

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(prefix: str, now_ms: int) -> str:
    """A new id such as "req_01jd2...": 48 bits of time and 80 random bits, Crockford base 32.

    `now_ms` is Unix time in milliseconds; ids of later milliseconds sort later.
    """
    number = (now_ms & (2**48 - 1)) << 80 | secrets.randbits(80)
    return f"{prefix}_{_base32(number, 26)}"


def derived_id(prefix: str, *parts: str) -> str:
    """The id that the parts alone decide: the same parts give the same id everywhere."""
    digest = hashlib.sha256("\x1f".join(parts).encode()).digest()
    return f"{prefix}_{_base32(int.from_bytes(digest[:16]), 26)}"


def _base32(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
