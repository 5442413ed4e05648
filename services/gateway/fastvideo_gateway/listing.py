"""Lists of requests, newest first, page by page."""

import asyncio
import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from fastvideo.errors import InvalidField
from fastvideo.events.store import EventLog
from fastvideo.requests.state import TERMINAL_STATUSES
from fastvideo.requests.types import RequestState, RequestStatus
from fastvideo_gateway.index import ListQuery, PagePosition, RequestIndex

PAGE_SIZE_DEFAULT: Final = 50
PAGE_SIZE_MAX: Final = 200
# How long a list waits for the index to reach what the log holds when the call comes.
FRESHNESS_WAIT_S: Final = 1.0

ACTIVE_STATUSES: Final = frozenset(RequestStatus) - TERMINAL_STATUSES


class Projects(Protocol):
    """Whoever keeps the index up to date."""

    async def reached(self, heads: Mapping[int, int]) -> None:
        """Return when the index holds every event up to these offsets."""
        ...


@dataclass(frozen=True, slots=True)
class RequestPage:
    """Some requests, and the token for the next; an empty token says there are no more."""

    states: tuple[RequestState, ...]
    next_page_token: str


class Lister:
    """Reads the index, as fresh as the log when it can be had in time."""

    def __init__(self, log: EventLog, index: RequestIndex, projector: Projects) -> None:
        self._log = log
        self._index = index
        self._projector = projector

    async def page(
        self,
        tenant_id: str,
        *,
        page_size: int = 0,
        page_token: str = "",
        status: RequestStatus | None = None,
        session_id: str = "",
    ) -> RequestPage:
        """One page. Raises InvalidField for a size or token that is not allowed."""
        if not 0 <= page_size <= PAGE_SIZE_MAX:
            allowed = f"1 to {PAGE_SIZE_MAX}; 0 takes {PAGE_SIZE_DEFAULT}"
            raise InvalidField("page_size", page_size, allowed)
        size = page_size or PAGE_SIZE_DEFAULT
        filters = _digest(tenant_id, status or "", session_id)
        query = ListQuery(
            tenant_id=tenant_id,
            limit=size + 1,
            statuses=None if status is None else frozenset({status}),
            session_id=session_id,
            after=_position(page_token, filters) if page_token else None,
        )
        await self._freshen()
        found = await self._index.list_requests(query)
        if len(found) <= size:
            return RequestPage(found, "")
        return RequestPage(found[:size], _token(found[size - 1], filters))

    async def active_requests(self, tenant_id: str, session_id: str) -> tuple[str, ...]:
        """Ids of the requests of a session that have not ended, newest first."""
        await self._freshen()
        query = ListQuery(
            tenant_id=tenant_id,
            limit=PAGE_SIZE_MAX,
            statuses=ACTIVE_STATUSES,
            session_id=session_id,
        )
        ids: list[str] = []
        while True:
            found = await self._index.list_requests(query)
            ids.extend(state.spec.request_id for state in found)
            if len(found) < PAGE_SIZE_MAX:
                return tuple(ids)
            last = found[-1]
            after = PagePosition(last.accepted_at, last.spec.request_id)
            query = ListQuery(
                tenant_id=tenant_id,
                limit=PAGE_SIZE_MAX,
                statuses=ACTIVE_STATUSES,
                session_id=session_id,
                after=after,
            )

    async def _freshen(self) -> None:
        """Wait until the index holds what was in the log when this began, within a bound."""
        try:
            async with asyncio.timeout(FRESHNESS_WAIT_S):
                await self._projector.reached(await self._log.heads())
        except TimeoutError:
            return  # A rebuild runs: an older list is better than none.


def _token(last: RequestState, filters: str) -> str:
    micros = (last.accepted_at - _EPOCH) // timedelta(microseconds=1)
    record = json.dumps([micros, last.spec.request_id, filters])
    return base64.urlsafe_b64encode(record.encode()).decode()


def _position(token: str, filters: str) -> PagePosition:
    allowed = "the next_page_token of a page of the same list"
    try:
        micros, request_id, of_filters = json.loads(base64.urlsafe_b64decode(token.encode()))
        accepted_at = _EPOCH + timedelta(microseconds=micros)
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise InvalidField("page_token", token, allowed) from error
    if of_filters != filters or not isinstance(request_id, str):
        raise InvalidField("page_token", token, allowed)
    return PagePosition(accepted_at, request_id)


def _digest(*filters: str) -> str:
    return hashlib.sha256("\x1f".join(filters).encode()).hexdigest()[:16]


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
