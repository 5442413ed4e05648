"""What the scheduler measures: how far its predictions of device-seconds were off."""

from fastvideo.scheduling.events import BatchExecuted
from fastvideo.telemetry import metrics


class Meters:
    """The meters of one term."""

    def __init__(self) -> None:
        self._error = metrics.ratio(
            "fastvideo.scheduler.prediction_error",
            "Predicted device-seconds of a batch against what was measured, 0 to 1",
        )

    def executed(self, event: BatchExecuted) -> None:
        """A worker reported a batch. A window that stopped early was another thing to predict."""
        taken = event.measured_seconds
        if taken > 0 and event.predicted_seconds > 0 and not event.yielded:
            error = min(1.0, abs(taken - event.predicted_seconds) / taken)
            self._error.record(error, {"fastvideo.batch.kind": event.kind.value})
