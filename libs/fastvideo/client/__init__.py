"""The Python client of a FastVideo server: `AsyncClient`, and `Client` for code without asyncio.

**Invariant:** it knows the protos and the typed events, no service and no torch.
**API boundary.**
"""

from fastvideo.client.async_client import AsyncClient
from fastvideo.client.batch_file import BatchItem, read_batch
from fastvideo.client.batches import BatchResult, run_batch
from fastvideo.client.calls import CallPolicy
from fastvideo.client.event_log import LogClient, LogEntries
from fastvideo.client.explanations import Explained
from fastvideo.client.generation import Generation, Media
from fastvideo.client.keys import ApiKeyInfo, KeyClient, NewKey, SyncKeyClient
from fastvideo.client.session import AsyncSession
from fastvideo.client.session_calls import SessionInfo
from fastvideo.client.sync_client import Client
from fastvideo.client.sync_event_log import SyncLogClient
from fastvideo.client.sync_session import Session
from fastvideo.client.types import (
    DEFAULT_MODEL_ID,
    ModelDescription,
    ModelSummary,
    Page,
    ServableSummary,
)
from fastvideo.events.reading.entries import UnreadableEvent
from fastvideo.events.reading.filters import EventFilter
from fastvideo.rpc.tls import ClientTls

__all__ = [
    "DEFAULT_MODEL_ID",
    "ApiKeyInfo",
    "AsyncClient",
    "AsyncSession",
    "BatchItem",
    "BatchResult",
    "CallPolicy",
    "Client",
    "ClientTls",
    "EventFilter",
    "Explained",
    "Generation",
    "KeyClient",
    "LogClient",
    "LogEntries",
    "Media",
    "ModelDescription",
    "ModelSummary",
    "NewKey",
    "Page",
    "ServableSummary",
    "Session",
    "SessionInfo",
    "SyncKeyClient",
    "SyncLogClient",
    "UnreadableEvent",
    "read_batch",
    "run_batch",
]
