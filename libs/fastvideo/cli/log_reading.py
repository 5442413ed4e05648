"""What `fastvideo log show`, `tail` and `stats` do once they know their gateway."""

from contextlib import aclosing

from fastvideo.cli.connection import Target
from fastvideo.cli.log_view import entry_line, entry_record, stats_lines, stats_record
from fastvideo.cli.report import print_json, print_lines
from fastvideo.cli.running import run
from fastvideo.errors import NotFound
from fastvideo.events.reading.entries import Entry
from fastvideo.events.reading.filters import EventFilter
from fastvideo.events.reading.stats import LogStats


def show_log(target: Target, wanted: EventFilter, *, limit: int | None, as_json: bool) -> None:
    """All that a filter lets through, oldest first."""

    async def show() -> int:
        told = 0
        async with (
            target.client() as client,
            aclosing(client.log.read(wanted, limit=limit)) as entries,
        ):
            async for entry in entries:
                told += 1
                _print(entry, as_json=as_json)
        return told

    if run(show()) == 0:
        named = ", ".join((*wanted.request_ids, *wanted.stream_ids))
        raise NotFound(f"the log has no such events{f' of {named}' if named else ''}")


def show_newest(target: Target, wanted: EventFilter, *, limit: int, as_json: bool) -> None:
    """The newest of what a filter lets through, in the order of the log."""
    entries = run(_newest(target, wanted, limit))
    if not entries:
        raise NotFound("the log has no such events")
    for entry in entries:
        _print(entry, as_json=as_json)


def tail_log(
    target: Target, wanted: EventFilter, *, lines: int, follow: bool, as_json: bool
) -> None:
    """The newest events, and then what comes."""

    async def tail() -> None:
        async with target.client() as client:
            # Where the log ends now: nothing between what was and what comes is missed.
            heads = (await client.log.stats()).heads
            after = {partition: head + 1 for partition, head in heads.items()}
            newest: list[Entry] = []
            if lines:
                read = client.log.read(wanted, after=after, newest_first=True, limit=lines)
                async with aclosing(read) as entries:
                    newest = [entry async for entry in entries]
            for entry in reversed(newest):
                _print(entry, as_json=as_json)
            if follow:
                async with aclosing(client.log.subscribe(wanted, after=heads)) as coming:
                    async for entry in coming:
                        _print(entry, as_json=as_json)

    run(tail())


def show_stats(target: Target, *, as_json: bool) -> None:
    """How much is in the log."""

    async def read() -> LogStats:
        async with target.client() as client:
            return await client.log.stats()

    stats = run(read())
    if as_json:
        print_json(stats_record(stats))
    else:
        print_lines(stats_lines(stats))


async def _newest(target: Target, wanted: EventFilter, limit: int) -> list[Entry]:
    async with (
        target.client() as client,
        aclosing(client.log.read(wanted, newest_first=True, limit=limit)) as entries,
    ):
        found = [entry async for entry in entries]
    return found[::-1]


def _print(entry: Entry, *, as_json: bool) -> None:
    if as_json:
        print_json(entry_record(entry))
    else:
        print_lines([entry_line(entry)])
