"""What a leader counts: what the log has of it, so that no event is counted by two leaders."""

from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.context import Context

from fastvideo.requests.types import RequestKind
from fastvideo.scheduling.admission import COMPUTE
from fastvideo.scheduling.events import (
    BatchExecuted,
    CancelRequest,
    CompleteRequest,
    Decision,
    DeferLoop,
    FailRequest,
    PreemptRequest,
    RestartRequest,
)
from fastvideo.scheduling.inputs import SchedulerInput
from fastvideo.telemetry import metrics
from fastvideo.telemetry.instruments import (
    BATCH_SIZE,
    DEFERRED,
    MODEL,
    OUTCOME,
    PREDICTION_ERROR,
    PREEMPTED,
    REASON,
    REQUEST_DEVICE_TIME,
    REQUEST_DURATION,
    REQUEST_KIND,
    REQUEST_WAIT,
    REQUESTS_ENDED,
    RESTARTED,
    STEP_DURATION,
    STEPS,
    UNIT_KIND,
    reason_label,
)
from fastvideo_scheduler.requests import LiveRequests

Count = Callable[[], None]
Ending = CompleteRequest | FailRequest | CancelRequest

_OUTCOMES: Final = {
    CompleteRequest: "completed",
    FailRequest: "failed",
    CancelRequest: "cancelled",
}
_OTHER: Final = "other"


class Meters:
    """The meters of one term."""

    def __init__(self, requests: LiveRequests, models: Sequence[str]) -> None:
        self._requests = requests
        self._ended = metrics.counter(REQUESTS_ENDED)
        self._duration = metrics.histogram(REQUEST_DURATION)
        self._wait = metrics.histogram(REQUEST_WAIT)
        self._device_time = metrics.counter(REQUEST_DEVICE_TIME)
        self._deferred = metrics.counter(DEFERRED)
        self._preempted = metrics.counter(PREEMPTED)
        self._restarted = metrics.counter(RESTARTED)
        self._batch_size = metrics.histogram(BATCH_SIZE)
        self._step = metrics.histogram(STEP_DURATION)
        self._steps = metrics.counter(STEPS)
        self._error = metrics.histogram(PREDICTION_ERROR)
        self._begin(models)

    def counting(
        self, event: SchedulerInput, decisions: Sequence[Decision], committed: Count | None
    ) -> Count | None:
        """`committed`, and what is to be counted once the log has an input and its decisions.

        Made before the requests that end by them are forgotten.
        """
        found = [count for decision in decisions if (count := self._of(decision)) is not None]
        if isinstance(event, BatchExecuted) and event.results:
            found.append(self._of_batch(event))
        if not found:
            return committed

        def call() -> None:
            if committed is not None:
                committed()
            for count in found:
                count()

        return call

    def _begin(self, models: Sequence[str]) -> None:
        """Sums begin at nothing, so that a rate sees the first that comes."""
        self._deferred.add(0, {REASON: COMPUTE})
        for model_id in models:
            self._preempted.add(0, {MODEL: model_id})
            self._restarted.add(0, {MODEL: model_id})
            asked = {REQUEST_KIND: RequestKind.GENERATION.value, MODEL: model_id}
            for outcome in _OUTCOMES.values():
                self._ended.add(0, {**asked, OUTCOME: outcome, REASON: ""})

    def _of(self, decision: Decision) -> Count | None:
        match decision:
            case CompleteRequest() | FailRequest() | CancelRequest():
                return self._of_ending(decision)
            case DeferLoop():
                resource, colon, _ = decision.reason.partition(":")
                labels = {REASON: resource if colon else _OTHER}
                return lambda: self._deferred.add(1, labels)
            case PreemptRequest():
                model = self._model_of(decision.request_id)
                return lambda: self._preempted.add(1, {MODEL: model})
            case RestartRequest():
                model = self._model_of(decision.request_id)
                return lambda: self._restarted.add(1, {MODEL: model})
            case _:
                return None

    def _of_ending(self, decision: Ending) -> Count:
        spec = self._requests.spec(decision.request_id)
        asked = {
            REQUEST_KIND: spec.kind.value if spec is not None else "",
            MODEL: spec.model_id if spec is not None else "",
        }
        labels = {**asked, OUTCOME: _OUTCOMES[type(decision)]}
        reason = reason_label(decision.error.reason) if isinstance(decision, FailRequest) else ""
        context = self._requests.spans.context_of_request(decision.request_id)
        sums = decision.metrics

        def count() -> None:
            self._ended.add(1, {**labels, REASON: reason})
            self._duration.record(sums.total_seconds, labels, context)
            self._wait.record(sums.queue_seconds, asked, context)
            self._device_time.add(sums.device_seconds, labels)

        return count

    def _of_batch(self, event: BatchExecuted) -> Count:
        units = len({result.loop for result in event.results})
        kind = {UNIT_KIND: event.kind.value}
        labels = {**kind, MODEL: self._model_of(event.results[0].loop.request_id)}
        context = self._requests.spans.context_of_batch(event.batch_id)
        # A window has all of its steps' results.
        seconds = event.measured_seconds * units / len(event.results)

        def count() -> None:
            self._batch_size.record(units, labels)
            self._steps.add(len(event.results), labels)
            self._step.record(seconds, labels, context)
            self._record_error(event, kind, context)

        return count

    def _record_error(
        self, event: BatchExecuted, labels: dict[str, str], context: Context | None
    ) -> None:
        """How far off a prediction was; a window that stopped early had another one."""
        taken = event.measured_seconds
        if taken > 0 and event.predicted_seconds > 0 and not event.yielded:
            error = min(1.0, abs(taken - event.predicted_seconds) / taken)
            self._error.record(error, labels, context)

    def _model_of(self, request_id: str) -> str:
        spec = self._requests.spec(request_id)
        return spec.model_id if spec is not None else ""
