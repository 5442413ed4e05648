"""Where spans are found: a trace store, the files of a local stack, or the event log."""

import asyncio
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fastvideo.errors import InvalidField, Unavailable
from fastvideo.explain.spans import spans_of_explanation
from fastvideo.explain.types import Explanation
from fastvideo.telemetry.span_files import read_spans
from fastvideo.telemetry.span_tree import linked_traces
from fastvideo.telemetry.spans import SpanRecord
from fastvideo.telemetry.trace_stores import spans_of_answer

TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
# Traces of other requests that are asked for, for the batches that they shared.
OTHERS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Found:
    """Spans, where they are from, and what there is to say of the search."""

    spans: tuple[SpanRecord, ...]
    origin: str
    notes: tuple[str, ...] = ()


def from_files(folder: Path, trace_id: str) -> Found:
    """What a local stack keeps of a trace, and of batches that it shared."""
    origin = f"spans that the local stack keeps in {folder}"
    if not folder.is_dir():
        return Found((), origin, ("no local stack keeps spans",))
    spans = read_spans(folder, lambda line: trace_id in line)
    if not spans:
        return Found((), origin, (f"{folder} has no span of it, or none any more",))
    others = linked_traces(spans, trace_id)
    wanted = (trace_id, *others)
    return Found(tuple(read_spans(folder, lambda line: any(one in line for one in wanted))), origin)


async def from_store(url: str, trace_id: str) -> Found:
    """What a trace store has. InvalidField for what is no address of HTTP."""
    if not url.startswith(("http://", "https://")):
        raise InvalidField(
            "FASTVIDEO_TRACE_QUERY_URL", url, "an address such as http://jaeger:16686"
        )
    origin = f"the trace store at {url}"
    try:
        spans = await asyncio.to_thread(_fetch, url, trace_id)
        others = sorted(linked_traces(spans, trace_id))
        for other in others[:OTHERS_MAX]:
            spans += await asyncio.to_thread(_fetch, url, other)
    except Unavailable as error:
        return Found((), origin, (error.message,))
    notes = [] if spans else [f"{origin} does not know it"]
    if len(others) > OTHERS_MAX:
        notes.append(f"batches of {len(others) - OTHERS_MAX} more traces were not asked for")
    return Found(spans, origin, tuple(notes))


def from_log(explanation: Explanation, trace_id: str) -> Found:
    """What the event log says."""
    notes = (explanation.left_out,) if explanation.left_out else ()
    return Found(
        spans_of_explanation(explanation, trace_id),
        "the event log, since no spans are kept: no client, no gateway, no inside of a worker",
        notes,
    )


def _fetch(url: str, trace_id: str) -> tuple[SpanRecord, ...]:
    """A trace as a store answers it; none when it does not know it."""
    request = urllib.request.Request(
        f"{url}/api/traces/{trace_id}", headers={"Accept": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            body = answer.read(ANSWER_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                return ()
            raise Unavailable(f"the trace store answered {error.code}", subject=url) from error
    except (OSError, ValueError) as error:
        raise Unavailable(f"the trace store does not answer: {error}", subject=url) from error
    if len(body) > ANSWER_BYTES_MAX:
        raise Unavailable(f"the trace has more than {ANSWER_BYTES_MAX} bytes", subject=url)
    try:
        document = json.loads(body)
    except ValueError as error:
        raise Unavailable("the trace store answered no JSON", subject=url) from error
    return spans_of_answer(document)
