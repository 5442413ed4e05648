"""How a view of the log reads it: what a newer program wrote is passed over, and counted.

Whoever decides by the log halts instead: `catalog.payload_of` raises.
"""

from fastvideo.errors import CorruptLog
from fastvideo.events.catalog import event_of, is_unknown
from fastvideo.events.records import StoredEvent
from fastvideo.events.types import Event
from fastvideo.telemetry import metrics
from fastvideo.telemetry.instruments import EVENT_TYPE, PASSED_OVER, VIEW


def event_for_view(stored: StoredEvent, view: str) -> Event | None:
    """The typed event, or None when a newer program wrote it; the metric names the view.

    Raises CorruptLog for what no program can read.
    """
    try:
        return event_of(stored)
    except CorruptLog as error:
        if not is_unknown(error):
            raise
    count_passed_over(view, stored)
    return None


def count_passed_over(view: str, stored: StoredEvent) -> None:
    """Count an event that a view did without."""
    metrics.counter(PASSED_OVER).add(1, {VIEW: view, EVENT_TYPE: stored.type})
