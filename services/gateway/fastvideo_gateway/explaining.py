"""Explain: why a request took, or takes, the time that it does."""

import asyncio
from dataclasses import dataclass
from typing import Final

from fastvideo.clock import Clock
from fastvideo.errors import InvalidField, NotFound
from fastvideo.events.store import EventLog
from fastvideo.explain.explanation import Page, explain
from fastvideo.explain.reading import names_of, read_history
from fastvideo.explain.totals import timeline
from fastvideo.explain.types import Explanation
from fastvideo.rpc.paging import PagePosition, page_position, page_token

UNITS_DEFAULT: Final = 500
UNITS_MAX: Final = 2_000
# An explanation of a long request reads much of the log; more wait for their turn.
AT_ONCE_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class ExplanationPage:
    """An explanation with some of its units, and the token for the next."""

    explanation: Explanation
    next_page_token: str


class Explainer:
    """Reads explanations from the log; keeps nothing."""

    def __init__(self, log: EventLog, clock: Clock, shard: str) -> None:
        self._log = log
        self._clock = clock
        self._shard = shard
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)

    async def explain(
        self, request_id: str, tenant_id: str, *, page_size: int = 0, token: str = ""
    ) -> ExplanationPage:
        """Explain a request of a tenant.

        Raises NotFound for an unknown request and InvalidField for a size or token that is not
        allowed.
        """
        if not 0 <= page_size <= UNITS_MAX:
            allowed = f"1 to {UNITS_MAX}; 0 takes {UNITS_DEFAULT}"
            raise InvalidField("page_size", page_size, allowed)
        filters = ("explain", tenant_id, request_id)
        position = page_position(token, *filters)
        page = Page(_first(position, token), page_size or UNITS_DEFAULT)
        async with self._turns:
            read = await read_history(self._log, request_id, tenant_id, self._shard)
            if read is None or read.state.deleted_at is not None:
                raise NotFound(f"request {request_id} does not exist", subject="request_id")
            # In threads, since others want to be answered meanwhile.
            laid_out = await asyncio.to_thread(timeline, read.history, self._clock.now())
            explanation = await asyncio.to_thread(
                explain,
                read.state,
                read.history,
                laid_out,
                await names_of(self._log, read, laid_out),
                page=page,
                events_read=read.events_read,
                left_out=read.left_out,
            )
        told = page.first + len(explanation.units)
        if told >= explanation.unit_count:
            return ExplanationPage(explanation, "")
        last = PagePosition(read.state.accepted_at, str(told))
        return ExplanationPage(explanation, page_token(last, *filters))


def _first(position: PagePosition | None, token: str) -> int:
    """The number of the first unit of a page."""
    if position is None:
        return 0
    if not position.item_id.isdecimal():
        raise InvalidField("page_token", token, "the next_page_token of the same explanation")
    return int(position.item_id)
