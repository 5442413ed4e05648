"""What the service keeps of each live request: its spec and its span."""

from collections.abc import Sequence

from fastvideo.replay.saved_term import Acceptance
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.effects import TERMINAL
from fastvideo.scheduling.events import Decision
from fastvideo_scheduler.spans import Spans


class LiveRequests:
    """The requests of one leader's term, from acceptance to the writing of their end."""

    def __init__(self) -> None:
        self.specs: dict[str, RequestSpec] = {}
        self._acceptances: dict[str, Acceptance] = {}
        self.spans = Spans()

    @property
    def acceptances(self) -> tuple[Acceptance, ...]:
        """Where the log has each of them."""
        return tuple(self._acceptances.values())

    def begin(self, spec: RequestSpec, acceptance: Acceptance) -> None:
        """A request came, under a span of whoever accepted it."""
        self.specs[spec.request_id] = spec
        self._acceptances[spec.request_id] = acceptance
        self.spans.begin_request(spec, acceptance.traceparent)

    def spec(self, request_id: str) -> RequestSpec | None:
        """The request, while it lives."""
        return self.specs.get(request_id)

    def traceparent(self, request_id: str) -> str:
        """The traceparent of its span; empty when it has none."""
        return self.spans.traceparent(request_id)

    def written(self, decisions: Sequence[Decision]) -> None:
        """Forget the requests that these decisions ended."""
        for decision in decisions:
            if isinstance(decision, TERMINAL):
                self.specs.pop(decision.request_id, None)
                self._acceptances.pop(decision.request_id, None)
                self.spans.end_request(decision)
