"""What events say of the request that they are about."""

from datetime import datetime

from fastvideo.events.types import EventMetadata
from fastvideo.requests.types import RequestSpec
from fastvideo.version import program_version


def request_metadata(spec: RequestSpec, at: datetime, traceparent: str) -> EventMetadata:
    """The metadata of an event about a request, decided at a moment, caused by a span."""
    return EventMetadata(
        tenant_id=spec.tenant_id,
        request_id=spec.request_id,
        session_id=spec.session_id,
        program_id=spec.program_id,
        model_id=spec.model_id,
        traceparent=traceparent,
        versions={"fastvideo": program_version(), "card": spec.card_digest},
        occurred_at=at,
    )
