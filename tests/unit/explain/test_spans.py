"""An explanation as spans, for whom no others are kept."""

from datetime import UTC, datetime, timedelta

from fastvideo.explain.spans import spans_of_explanation
from fastvideo.explain.types import (
    ExplainedStage,
    ExplainedTotals,
    ExplainedUnit,
    ExplainedWait,
    Explanation,
    UnitOutcome,
    WaitCause,
)
from fastvideo.requests.types import ErrorDetail, RequestStatus
from fastvideo.scheduling.work import StepRange, UnitKind
from fastvideo.telemetry.span_tree import grow

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
TRACE = "a" * 32


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def test_waits_loops_and_batches_hang_under_the_request() -> None:
    explanation = Explanation(
        request_id="req_1",
        status=RequestStatus.FAILED,
        accepted_at=at(0),
        ended_at=at(5),
        explained_at=at(5),
        totals=ExplainedTotals(),
        error=ErrorDetail(reason="OUT_OF_MEMORY", message="no room"),
        waits=(ExplainedWait(cause=WaitCause.PLACE, begun_at=at(0), seconds=1.5),),
        stages=(
            ExplainedStage(
                node_id="denoise",
                attempt=1,
                worker_id="worker-1",
                assigned_at=at(1.5),
                prepared_at=at(2),
                preparation_seconds=0.25,
                ended_at=at(5),
            ),
        ),
        units=(
            ExplainedUnit(
                unit_id="u1",
                node_id="denoise",
                attempt=1,
                worker_id="worker-1",
                kind=UnitKind.DIFFUSION_STEP,
                step_range=StepRange(),
                outcome=UnitOutcome.DONE,
                started_at=at(2),
                ended_at=at(3),
                shared_with=("req_2",),
                shared_with_others=1,
            ),
        ),
    )
    (root,) = grow(spans_of_explanation(explanation, TRACE), TRACE)
    assert (root.name, root.seconds, root.message) == (
        "request failed",
        5.0,
        "OUT_OF_MEMORY: no room",
    )
    wait, loop = root.children
    assert (wait.name, wait.seconds) == ("wait place", 1.5)
    prepare, batch = loop.children
    assert (loop.name, prepare.seconds) == ("loop denoise", 0.25)
    assert (batch.detail, batch.instances, batch.requests) == (
        "diffusion_step",
        ("worker-1",),
        3,
    )
