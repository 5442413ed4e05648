"""Lists of requests, newest first, page by page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from fastvideo.clock import Clock, SystemClock
from fastvideo.errors import InvalidField
from fastvideo.requests.lifetimes import as_of
from fastvideo.requests.state import TERMINAL_STATUSES
from fastvideo.requests.types import RequestState, RequestStatus
from fastvideo.rpc.names import check_name
from fastvideo.rpc.paging import (
    PAGE_SIZE_MAX,
    PagePosition,
    checked_page_size,
    page_position,
    page_token,
)
from fastvideo_gateway.index import ListQuery, RequestIndex

# How long a list waits for the index to reach what the log holds when the call comes; after
# that an older list is better than none.
FRESHNESS_WAIT_S: Final = 1.0
FRESH_NOW_S: Final = 0.05

# Of what is searched for; each word looks through every request.
SEARCH_CHARACTERS_MAX: Final = 200
SEARCH_WORDS_MAX: Final = 8

ACTIVE_STATUSES: Final = frozenset(RequestStatus) - TERMINAL_STATUSES


class Freshness(Protocol):
    """Whoever keeps the index up to date."""

    async def is_fresh(self, timeout_s: float) -> bool:
        """Wait until the index holds what is in the log now; whether it did in time."""
        ...


@dataclass(frozen=True, slots=True)
class RequestPage:
    """Some requests, and the token for the next; an empty token says there are no more."""

    states: tuple[RequestState, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class VideoPage:
    """Some requests for videos, and whether there are more behind them."""

    states: tuple[RequestState, ...]
    has_more: bool


class Lister:
    """Reads the index, as fresh as the log when it can be had in time."""

    def __init__(
        self, index: RequestIndex, freshness: Freshness, clock: Clock | None = None
    ) -> None:
        self._index = index
        self._freshness = freshness
        self._clock = clock or SystemClock()

    async def page(
        self,
        tenant_id: str,
        *,
        page_size: int = 0,
        token: str = "",
        status: RequestStatus | None = None,
        session_id: str = "",
        model_id: str = "",
        search: str = "",
    ) -> RequestPage:
        """One page; of a search, those in whose id, model or texts each word occurs.

        Raises InvalidField for a size, token or search that is not allowed.
        """
        size = checked_page_size(page_size)
        words = _words(search)
        filters: tuple[str, ...] = ("requests", tenant_id, status or "", session_id)
        # Tokens of lists without these are what they were.
        filters += (model_id, *words) if model_id or words else ()
        query = ListQuery(
            tenant_id=tenant_id,
            limit=size + 1,
            statuses=None if status is None else frozenset({status}),
            session_id=session_id,
            model_id=model_id,
            words=words,
            after=page_position(token, *filters),
        )
        await self._freshness.is_fresh(FRESHNESS_WAIT_S)
        found = self._now(await self._index.list_requests(query))
        if len(found) <= size:
            return RequestPage(found, "")
        return RequestPage(found[:size], page_token(_position(found[size - 1]), *filters))

    async def videos(
        self, tenant_id: str, *, after_id: str, limit: int, oldest_first: bool
    ) -> "VideoPage":
        """Requests for videos behind one of them, at most `limit`.

        Raises InvalidField for an `after_id` that is none.
        """
        check_name("after", after_id)
        await self._freshness.is_fresh(FRESHNESS_WAIT_S)
        after = None
        if after_id:
            # Whoever deletes what it has listed goes on behind it all the same.
            known = await self._index.find_requests(tenant_id, (after_id,), deleted_too=True)
            if not known:
                raise InvalidField("after", after_id, "the id of a video")
            after = _position(known[0])
        query = ListQuery(
            tenant_id=tenant_id,
            limit=limit + 1,
            after=after,
            oldest_first=oldest_first,
            videos=True,
        )
        found = self._now(await self._index.list_requests(query))
        return VideoPage(found[:limit], len(found) > limit)

    async def is_fresh(self) -> bool:
        """Whether what was found lately is what the log holds."""
        return await self._freshness.is_fresh(FRESH_NOW_S)

    async def find(self, tenant_id: str, request_ids: Sequence[str]) -> tuple[RequestState, ...]:
        """Those of a tenant with these ids; unknown ones are left out."""
        await self._freshness.is_fresh(FRESHNESS_WAIT_S)
        return self._now(await self._index.find_requests(tenant_id, request_ids))

    def _now(self, states: Sequence[RequestState]) -> tuple[RequestState, ...]:
        """The states with what has expired meanwhile."""
        now = self._clock.now()
        return tuple(as_of(state, now) for state in states)

    async def active_requests(self, tenant_id: str, session_id: str) -> tuple[str, ...]:
        """Ids of the requests of a session that have not ended, newest first."""
        await self._freshness.is_fresh(FRESHNESS_WAIT_S)
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
            query = replace(query, after=_position(found[-1]))


def _words(search: str) -> tuple[str, ...]:
    words = tuple(search.lower().replace("\0", " ").split())
    if len(search) > SEARCH_CHARACTERS_MAX or len(words) > SEARCH_WORDS_MAX:
        allowed = f"at most {SEARCH_WORDS_MAX} words and {SEARCH_CHARACTERS_MAX} characters"
        raise InvalidField("search", search, allowed)
    return words


def _position(state: RequestState) -> PagePosition:
    return PagePosition(state.accepted_at, state.spec.request_id)
