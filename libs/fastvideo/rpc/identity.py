"""Who is calling: known to whatever a call runs, set by the door that let it in."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fastvideo.errors import PermissionDenied, Unauthenticated

DEFAULT_TENANT: Final = "default"
"""The tenant of every caller where there are no API keys."""


class Role(StrEnum):
    """What a caller may do: its tenant's own things, or also run the place for everybody."""

    USER = "user"
    OPERATOR = "operator"


class Access(StrEnum):
    """Who may call something."""

    # Whoever comes; nothing of anybody is told.
    PUBLIC = "public"
    # Whoever has a key, and only about what is its tenant's.
    TENANT = "tenant"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whoever makes a call."""

    tenant_id: str
    role: Role
    # The key that the caller showed; empty where there are none.
    key_id: str = ""


ANYBODY: Final = Caller(tenant_id=DEFAULT_TENANT, role=Role.OPERATOR)
"""Every caller of a stack that is open: it listens on loopback alone."""

_CALLER: Final[ContextVar[Caller]] = ContextVar("fastvideo_caller")


def current_caller() -> Caller:
    """Who made the call that runs now. Unauthenticated when no door said so."""
    caller = _CALLER.get(None)
    if caller is None:
        raise Unauthenticated("nobody said who calls")
    return caller


def current_tenant() -> str:
    """The tenant of the call that runs now. Unauthenticated when no door said so."""
    return current_caller().tenant_id


def require_operator() -> Caller:
    """The caller, who runs the place. PermissionDenied for anybody else."""
    caller = current_caller()
    if caller.role is not Role.OPERATOR:
        raise PermissionDenied("only an operator's key may do this", reason="OPERATOR_ONLY")
    return caller


@contextmanager
def calling(caller: Caller) -> Iterator[None]:
    """Everything inside the block is done for this caller."""
    token = _CALLER.set(caller)
    try:
        yield
    finally:
        _CALLER.reset(token)
