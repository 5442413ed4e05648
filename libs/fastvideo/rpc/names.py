"""Ids and names that a caller gives: looked up as they are, so they must be fit to be looked up."""

from typing import Final

from fastvideo.errors import InvalidField

NAME_CHARACTERS_MAX: Final = 200


def check_name(field: str, value: str) -> None:
    """Raise InvalidField for a name that nothing can have; the empty one is let through."""
    if len(value) > NAME_CHARACTERS_MAX or not value.isprintable():
        allowed = f"at most {NAME_CHARACTERS_MAX} printable characters"
        raise InvalidField(field, value[: NAME_CHARACTERS_MAX + 1], allowed)


def require_name(field: str, value: str, allowed: str) -> None:
    """As `check_name`; raises InvalidField also for the empty name."""
    if not value:
        raise InvalidField(field, value, allowed, reason="FIELD_REQUIRED")
    check_name(field, value)
