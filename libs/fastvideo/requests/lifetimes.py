"""How long what a request made is kept: until its lifetime has passed, or it is deleted.

The lifetime is settled when a request is accepted, and runs from its end. The log's times decide;
whoever answers compares them with the clock, so an answer is right before anybody has swept.

Invariant: no IO and no clock; the time comes in.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from fastvideo.errors import Gone, InvalidField
from fastvideo.requests.types import RequestState

TTL_S_MAX: Final = 2**31 - 1
"""The longest lifetime that can be asked for, 68 years; for ever is not to ask for one."""

EXPIRED: Final = "MEDIA_EXPIRED"
DELETED: Final = "MEDIA_DELETED"


def resolve_ttl(asked: int | None, limit_s: int) -> int | None:
    """The lifetime of a request that asks for one, or for none; None is for ever.

    `limit_s` is the default and the longest; 0 is no limit. Raises InvalidField.
    """
    longest = limit_s or TTL_S_MAX
    if asked is None:
        return limit_s or None
    if not 1 <= asked <= longest:
        left_out = f"{limit_s} seconds" if limit_s else "ever"
        allowed = f"1 to {longest} seconds, or left out for {left_out}"
        raise InvalidField("outputs.ttl_s", asked, allowed)
    return asked


def expiry(ended_at: datetime, ttl_s: int | None) -> datetime | None:
    """When what a request made goes; None when it stays."""
    return None if ttl_s is None else ended_at + timedelta(seconds=ttl_s)


def as_of(state: RequestState, now: datetime) -> RequestState:
    """The state with `expired_at` as it is now, whether or not the log tells of it yet."""
    if state.expired_at is not None or state.expires_at is None or now < state.expires_at:
        return state
    return replace(state, expired_at=state.expires_at)


def require_media(state: RequestState, subject: str) -> None:
    """Raise Gone for a request, as of now, whose lifetime has passed."""
    expired_at = state.expired_at
    if expired_at is not None:
        raise Gone(
            f"what request {state.spec.request_id} made expired at {expired_at:%Y-%m-%dT%H:%M:%SZ}",
            reason=EXPIRED,
            subject=subject,
            attributes={"expired_at": expired_at.isoformat()},
        )
