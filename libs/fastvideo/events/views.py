"""How a view of the log reads it: what a newer program wrote is passed over, and counted.

Whoever decides by the log halts instead: `catalog.payload_of` raises.
"""

from typing import Final

from fastvideo.errors import CorruptLog
from fastvideo.events.catalog import event_of, is_unknown
from fastvideo.events.records import StoredEvent
from fastvideo.events.types import Event
from fastvideo.telemetry import metrics

PASSED_OVER: Final = "fastvideo.events.passed_over"


def event_for_view(stored: StoredEvent, view: str) -> Event | None:
    """The typed event, or None when a newer program wrote it; the metric names the view.

    Raises CorruptLog for what no program can read.
    """
    try:
        return event_of(stored)
    except CorruptLog as error:
        if not is_unknown(error):
            raise
    passed_over = metrics.counter(
        PASSED_OVER, "Events that a view could not read, since a newer program wrote them"
    )
    passed_over.add(1, {"fastvideo.view": view, "fastvideo.event.type": stored.type})
    return None
