"""An explanation as spans, for whom there are no others: what the log says of times and workers.

They are seen from the scheduler: a batch begins when a worker began it, a stage when it was
assigned. What happened before acceptance, and inside a worker, is not in the log.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from fastvideo.explain.types import (
    ExplainedStage,
    ExplainedUnit,
    ExplainedWait,
    Explanation,
    UnitOutcome,
)
from fastvideo.requests.types import RequestStatus
from fastvideo.telemetry.spans import SpanRecord

SERVICE: Final = "scheduler"
_ROOT: Final = "request"


def spans_of_explanation(explanation: Explanation, trace_id: str) -> tuple[SpanRecord, ...]:
    """The request, its waits, the loops of each placement, and their batches.

    Ids are made up, and of this document alone.
    """
    until = explanation.ended_at or explanation.explained_at
    error = explanation.error
    root = SpanRecord(
        service=SERVICE,
        name=f"request {explanation.status}",
        trace_id=trace_id,
        span_id=_ROOT,
        start_ns=_ns(explanation.accepted_at),
        end_ns=_ns(until),
        failed=explanation.status is RequestStatus.FAILED,
        message=f"{error.reason}: {error.message}" if error is not None else "",
        attributes={"fastvideo.request_id": explanation.request_id},
    )
    spans = [root]
    for index, wait in enumerate(explanation.waits):
        spans.append(_wait(wait, trace_id, f"wait-{index}"))
    for stage in explanation.stages:
        spans += _stage(stage, explanation, trace_id, until)
    return tuple(spans)


def _wait(wait: ExplainedWait, trace_id: str, span_id: str) -> SpanRecord:
    return SpanRecord(
        service=SERVICE,
        name=f"wait {wait.cause}",
        trace_id=trace_id,
        span_id=span_id,
        parent_id=_ROOT,
        start_ns=_ns(wait.begun_at),
        end_ns=_ns(wait.begun_at + timedelta(seconds=wait.seconds)),
    )


def _stage(
    stage: ExplainedStage, explanation: Explanation, trace_id: str, until: datetime
) -> Iterable[SpanRecord]:
    stage_id = f"{stage.node_id}-{stage.attempt}-{stage.worker_id}"
    yield SpanRecord(
        service=SERVICE,
        name=f"loop {stage.node_id}" + (f" #{stage.attempt}" if stage.attempt > 1 else ""),
        trace_id=trace_id,
        span_id=stage_id,
        parent_id=_ROOT,
        start_ns=_ns(stage.assigned_at),
        end_ns=_ns(stage.ended_at or until),
    )
    if stage.prepared_at is not None:
        yield SpanRecord(
            service="worker",
            instance=stage.worker_id,
            name="prepare",
            trace_id=trace_id,
            span_id=f"{stage_id}-prepare",
            parent_id=stage_id,
            start_ns=_ns(stage.prepared_at - timedelta(seconds=stage.preparation_seconds)),
            end_ns=_ns(stage.prepared_at),
        )
    key = (stage.node_id, stage.attempt, stage.worker_id)
    for unit in explanation.units:
        if (unit.node_id, unit.attempt, unit.worker_id) == key and unit.started_at is not None:
            yield _unit(unit, trace_id, stage_id, until)


def _unit(unit: ExplainedUnit, trace_id: str, stage_id: str, until: datetime) -> SpanRecord:
    assert unit.started_at is not None
    error = unit.error
    others = len(unit.shared_with) + unit.shared_with_others
    return SpanRecord(
        service="worker",
        instance=unit.worker_id,
        name="batch",
        trace_id=trace_id,
        span_id=unit.unit_id,
        parent_id=stage_id,
        start_ns=_ns(unit.started_at),
        end_ns=_ns(unit.ended_at or until),
        failed=unit.outcome is UnitOutcome.FAILED,
        message=f"{error.reason}: {error.message}" if error is not None else "",
        attributes={
            "fastvideo.batch.kind": unit.kind.value,
            "fastvideo.batch.requests": 1 + others,
            "fastvideo.batch.units": 1,
        },
    )


def _ns(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
