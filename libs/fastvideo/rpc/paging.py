"""Pages of a list: sizes within bounds, and tokens that only fit the list they came from."""

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from fastvideo.errors import InvalidField

PAGE_SIZE_DEFAULT: Final = 50
PAGE_SIZE_MAX: Final = 200
TOKEN_CHARACTERS_MAX: Final = 1_000

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PagePosition:
    """Where a page begins: after this one, in the order newest first, then greatest id first."""

    at: datetime
    item_id: str


def checked_page_size(page_size: int) -> int:
    """The size to use; 0 takes the default. Raises InvalidField."""
    if not 0 <= page_size <= PAGE_SIZE_MAX:
        allowed = f"1 to {PAGE_SIZE_MAX}; 0 takes {PAGE_SIZE_DEFAULT}"
        raise InvalidField("page_size", page_size, allowed)
    return page_size or PAGE_SIZE_DEFAULT


def page_token(last: PagePosition, *filters: str) -> str:
    """The opaque token of the page after `last`, in the list that the filters make."""
    micros = (last.at - _EPOCH) // timedelta(microseconds=1)
    record = json.dumps([micros, last.item_id, _digest(filters)])
    return base64.urlsafe_b64encode(record.encode()).decode()


def page_position(token: str, *filters: str) -> PagePosition | None:
    """Where the page of a token begins; None for the empty token of the first page.

    Raises InvalidField for a token that is none, or is of another list.
    """
    if not token:
        return None
    allowed = "the next_page_token of a page of the same list"
    if len(token) > TOKEN_CHARACTERS_MAX:
        raise InvalidField("page_token", token[:TOKEN_CHARACTERS_MAX], allowed)
    try:
        micros, item_id, digest = json.loads(base64.urlsafe_b64decode(token.encode()))
        position = PagePosition(_EPOCH + timedelta(microseconds=micros), item_id)
    except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error) as error:
        raise InvalidField("page_token", token, allowed) from error
    is_id = isinstance(item_id, str) and item_id.isascii() and item_id.isprintable()
    if digest != _digest(filters) or not is_id:
        raise InvalidField("page_token", token, allowed)
    return position


def _digest(filters: tuple[str, ...]) -> str:
    return hashlib.sha256("\x1f".join(filters).encode()).hexdigest()[:16]
