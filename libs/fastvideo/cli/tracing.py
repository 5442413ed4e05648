"""What `fastvideo trace` does: find the spans, grow the tree, show it."""

import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from fastvideo.cli.config import CliConfig
from fastvideo.cli.connection import find_gateway
from fastvideo.cli.report import print_json
from fastvideo.cli.running import local_trace_folder, run
from fastvideo.cli.trace_sources import Found, from_files, from_log, from_store
from fastvideo.cli.trace_view import TraceView, tree_record, tree_text
from fastvideo.errors import InvalidField, NotFound
from fastvideo.telemetry.span_tree import fold, grow

if TYPE_CHECKING:
    from fastvideo.client import AsyncClient

_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")

Source = Callable[[], Awaitable[Found | None]]


def show_trace(
    config: CliConfig,
    request_id: str,
    trace_id: str,
    *,
    gateway: str,
    data: Path | None,
    every: bool,
    as_json: bool,
) -> None:
    """Show the trace of a request, or of that id.

    Raises NotFound when nobody has it, InvalidField for what is no trace's id.
    """
    folder = local_trace_folder(config, data)
    if trace_id:
        if not _TRACE_ID.fullmatch(trace_id.lower()):
            raise InvalidField("--trace-id", trace_id, "32 hexadecimal digits")
        view = run(_by_id(config, folder, trace_id.lower()), traced=False)
    else:
        target = find_gateway(config, gateway, data)

        async def get() -> TraceView:
            async with target.client() as client:
                return await _of_request(config, folder, client, request_id)

        view = run(get(), traced=False)
    nodes = view.roots if every else fold(view.roots)
    if as_json:
        print_json(tree_record(view, nodes))
    else:
        console = Console(highlight=False, soft_wrap=True)
        console.print(tree_text(view, nodes, console.width))


async def _by_id(config: CliConfig, folder: Path, trace_id: str) -> TraceView:
    found = await _first(_stores(config, folder, trace_id))
    if found is None:
        raise NotFound(
            f"no span of trace {trace_id} is kept: neither by a trace store "
            f"(FASTVIDEO_TRACE_QUERY_URL) nor in {folder}",
            reason="NO_TRACE",
            subject=trace_id,
        )
    return _view(found, trace_id, "")


async def _of_request(
    config: CliConfig, folder: Path, client: "AsyncClient", request_id: str
) -> TraceView:
    trace_id = await _trace_id_of(client, request_id)

    async def log() -> Found:
        return from_log(await client.explain(request_id), trace_id)

    stores = _stores(config, folder, trace_id) if trace_id else ()
    found = await _first((*stores, log))
    assert found is not None
    return _view(found, trace_id, request_id)


def _stores(config: CliConfig, folder: Path, trace_id: str) -> tuple[Source, ...]:
    async def store() -> Found | None:
        return await from_store(config.trace_query_url, trace_id)

    async def files() -> Found | None:
        return from_files(folder, trace_id)

    return (store, files) if config.trace_query_url else (files,)


async def _first(sources: tuple[Source, ...]) -> Found | None:
    """What the first source has that has anything, and what the others before it said."""
    notes: tuple[str, ...] = ()
    for source in sources:
        found = await source()
        if found is not None and found.spans:
            return Found(found.spans, found.origin, (*notes, *found.notes))
        notes += found.notes if found is not None else ()
    return None


async def _trace_id_of(client: "AsyncClient", request_id: str) -> str:
    """The trace of a request; empty when the log names none."""
    async with aclosing(client.watch(request_id)) as events:
        async for event in events:
            parts: Any = event.metadata.traceparent.split("-")
            return str(parts[1]) if len(parts) > 1 else ""
    return ""


def _view(found: Found, trace_id: str, request_id: str) -> TraceView:
    return TraceView(
        trace_id=trace_id,
        request_id=request_id,
        origin=found.origin,
        notes=found.notes,
        roots=grow(found.spans, trace_id),
    )
