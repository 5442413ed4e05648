"""The Python client of a FastVideo server: `AsyncClient`, and `Client` for code without asyncio.

**Invariant:** it knows the protos and the typed events, no service and no torch.
**API boundary.**
"""

from fastvideo.client.async_client import DEFAULT_MODEL_ID, AsyncClient
from fastvideo.client.calls import CallPolicy
from fastvideo.client.event_log import LogClient, LogEntries
from fastvideo.client.sync_client import Client
from fastvideo.client.sync_event_log import SyncLogClient
from fastvideo.client.types import ModelSummary, Page, ServableSummary
from fastvideo.events.reading.entries import UnreadableEvent
from fastvideo.events.reading.filters import EventFilter

__all__ = [
    "DEFAULT_MODEL_ID",
    "AsyncClient",
    "CallPolicy",
    "Client",
    "EventFilter",
    "LogClient",
    "LogEntries",
    "ModelSummary",
    "Page",
    "ServableSummary",
    "SyncLogClient",
    "UnreadableEvent",
]
