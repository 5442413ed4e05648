"""What events of the log change in the counters, and what a request is predicted to take."""

from collections.abc import Sequence
from typing import Final

from fastvideo.clock import milliseconds
from fastvideo.errors import CorruptLog, FastVideoError
from fastvideo.events.catalog import TERMINAL, metadata_of
from fastvideo.events.records import DamagedEvent, StoredEvent
from fastvideo.events.types import EventPayload
from fastvideo.events.views import count_passed_over, event_for_view
from fastvideo.requests.events import (
    RequestAccepted,
    RequestCancelled,
    RequestCompleted,
    RequestFailed,
)
from fastvideo.requests.state import STREAM_PREFIX
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.cost import CostEstimator, request_phase, request_shape
from fastvideo.telemetry.logging import get_logger
from fastvideo_gateway.quotas.types import Accepted, Change, Ended

_LOG: Final = get_logger(__name__)

_WANTED: Final = frozenset({RequestAccepted.__name__, *TERMINAL})
# Requests whose spec is remembered until they end.
SPECS_MAX: Final = 20_000


class RequestCosts:
    """Device-seconds of whole requests, learnt from those that completed.

    A kind of request that never completed here is predicted to take nothing.
    """

    def __init__(self) -> None:
        self._costs = CostEstimator(lambda model_id, phase: None)
        # Model, phase and shape of those under way.
        self._kinds: dict[str, tuple[str, str, str]] = {}

    def predict(self, spec: RequestSpec) -> float:
        """Device-seconds of a request."""
        return self._costs.predict(*_kind(spec))

    def predicted(self, request_id: str) -> float:
        """Device-seconds that a request under way is predicted to take; 0 where it is unknown."""
        kind = self._kinds.get(request_id)
        return 0.0 if kind is None else self._costs.predict(*kind)

    def accepted(self, spec: RequestSpec) -> None:
        """Remember what kind of request it is."""
        if len(self._kinds) >= SPECS_MAX:
            del self._kinds[next(iter(self._kinds))]
        self._kinds[spec.request_id] = _kind(spec)

    def ended(self, request_id: str, device_seconds: float | None) -> None:
        """Learn what a request took; None teaches nothing."""
        kind = self._kinds.pop(request_id, None)
        if kind is not None and device_seconds:
            self._costs.measure(*kind, 1, device_seconds)


def _kind(spec: RequestSpec) -> tuple[str, str, str]:
    return spec.model_id, request_phase(spec), request_shape(spec)


def changes_of(events: Sequence[StoredEvent], costs: RequestCosts) -> list[Change]:
    """What events change; `costs` learns from them."""
    found = (_change(stored, costs) for stored in events if _is_wanted(stored))
    return [change for change in found if change is not None]


def _is_wanted(stored: StoredEvent) -> bool:
    return stored.type in _WANTED and stored.stream_id.startswith(STREAM_PREFIX)


def _change(stored: StoredEvent, costs: RequestCosts) -> Change | None:
    """What an event changes.

    One that cannot be read counts by its envelope and by what was predicted: a request whose end
    says more than this program knows, or is damaged, has ended nevertheless.
    """
    payload = _payload(stored)
    at_ms = milliseconds(stored.recorded_at)
    request_id = stored.stream_id.removeprefix(STREAM_PREFIX)
    if isinstance(payload, RequestAccepted):
        costs.accepted(payload.spec)
        predicted = costs.predict(payload.spec)
        return Accepted(stored.offset, payload.spec.tenant_id, request_id, at_ms, predicted)
    tenant_id = _tenant(stored)
    if not tenant_id:
        return None
    if stored.type not in TERMINAL:
        return Accepted(stored.offset, tenant_id, request_id, at_ms)
    seconds, measured = costs.predicted(request_id), None
    if isinstance(payload, RequestCompleted | RequestFailed | RequestCancelled):
        seconds = payload.metrics.device_seconds
        measured = seconds if isinstance(payload, RequestCompleted) else None
    costs.ended(request_id, measured)
    return Ended(stored.offset, tenant_id, request_id, at_ms, seconds)


def _payload(stored: StoredEvent) -> EventPayload | None:
    """What an event says; None when that cannot be read."""
    try:
        if not stored.is_whole:
            raise DamagedEvent(stored)
        event = event_for_view(stored, "quotas")
    except FastVideoError as error:
        count_passed_over("quotas", stored)
        _LOG.error("event read in part for quotas", stream=stored.stream_id, error=error.message)
        return None
    return None if event is None else event.payload


def _tenant(stored: StoredEvent) -> str:
    """Whose an event is; empty when that cannot be read."""
    try:
        return metadata_of(stored).tenant_id
    except CorruptLog:
        _LOG.error("event left out of quotas", stream=stored.stream_id)
        return ""
