"""The event log for code without asyncio: the methods of `LogClient`, each waiting."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from fastvideo.client.event_log import ALL, LogClient, LogEntries
from fastvideo.events.reading.entries import Entry
from fastvideo.events.reading.filters import EventFilter
from fastvideo.events.reading.stats import LogStats
from fastvideo.events.reading.verifying import VerifyProgress

T = TypeVar("T")


class Runs(Protocol):
    """Whoever runs a coroutine to its end."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


class SyncLogClient:
    """What `Client.log` offers; see `LogClient`."""

    def __init__(self, run: Runs, log: LogClient) -> None:
        self._run = run
        self._log = log

    def read_stream(
        self, stream_id: str, *, after_version: int = 0, limit: int | None = None
    ) -> Iterator[Entry]:
        """The events of a stream after a version, oldest first; see `LogClient.read_stream`."""
        return self._each(
            lambda: self._log.read_stream(stream_id, after_version=after_version, limit=limit)
        )

    def read(self, wanted: EventFilter = ALL, **options: Any) -> Iterator[Entry]:
        """What a filter lets through; see `LogClient.read`."""
        return self._each(lambda: self._log.read(wanted, **options))

    def pages(self, wanted: EventFilter = ALL, **options: Any) -> Iterator[LogEntries]:
        """As `read`, page by page; see `LogClient.pages`."""
        return self._each(lambda: self._log.pages(wanted, **options))

    def subscribe(self, wanted: EventFilter = ALL, **options: Any) -> Iterator[Entry]:
        """As `read`, and then as it comes; see `LogClient.subscribe`."""
        return self._each(lambda: self._log.subscribe(wanted, **options))

    def stats(self) -> LogStats:
        """How large the log is; see `LogClient.stats`."""
        return self._run(self._log.stats())

    def verify(self, *, after: Mapping[int, int] | None = None) -> Iterator[VerifyProgress]:
        """Every event checked again; see `LogClient.verify`."""
        return self._each(lambda: self._log.verify(after=after))

    def _each(self, begin: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
        items = begin()
        try:
            while (item := self._run(_next(items))) is not None:
                yield item
        finally:
            self._run(items.aclose())


async def _next(items: AsyncGenerator[T, None]) -> T | None:
    return await anext(items, None)
