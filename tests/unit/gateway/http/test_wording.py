"""Events in one line."""

from datetime import UTC, datetime

import pytest

from fastvideo.events.types import EventPayload
from fastvideo.requests.events import RequestProgressed, RequestQueued, RequestStarted
from fastvideo.requests.types import RequestMetrics
from fastvideo.scheduling.events import (
    BatchExecuted,
    CompleteRequest,
    DispatchBatch,
    ReportProgress,
    SchedulerDecided,
)
from fastvideo.scheduling.work import LoopRef, StepRange, StepResult, UnitKind
from fastvideo_gateway.http.wording import words_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def result(request_id: str, step: int) -> StepResult:
    loop = LoopRef(request_id=request_id, node_id="denoise", attempt=1)
    steps = StepRange(start=step - 1, stop=step, total=20)
    return StepResult(unit_id=f"{request_id}/{step}", loop=loop, step_range=steps)


BATCH = BatchExecuted(
    worker_id="w1",
    batch_id="1-1",
    kind=UnitKind.DIFFUSION_STEP,
    results=(result("a", 3), result("b", 7), result("c", 1), result("d", 2)),
    measured_seconds=0.5,
)
DECIDED = SchedulerDecided(
    at=NOON,
    decisions=(
        ReportProgress(request_id="a"),
        ReportProgress(request_id="b"),
        DispatchBatch(kind=UnitKind.DIFFUSION_STEP, loops=(result("a", 1).loop,)),
        CompleteRequest(request_id="b", metrics=RequestMetrics()),
    ),
)


@pytest.mark.parametrize(
    ("payload", "about", "expected"),
    [
        (RequestQueued(position=3, reason="no worker is free"), "", "place 3: no worker is free"),
        (RequestStarted(attempt=2), "", "attempt 2"),
        (RequestProgressed(fraction=0.25, node_id="denoise", step=5, steps=20), "",
         "denoise 5/20 · 25%"),
        (BATCH, "b", "denoise 7/20 with 3 others on w1, 0.50 s"),
        (BATCH, "", "denoise 3/20, denoise 7/20, denoise 1/20 and 1 more on w1, 0.50 s"),
        (DECIDED, "a", "ReportProgress, DispatchBatch"),
        (DECIDED, "", "2 ReportProgress, DispatchBatch, CompleteRequest"),
        (SchedulerDecided(at=NOON), "a", "nothing"),
    ],
)  # fmt: skip
def test_an_event_says_what_matters(payload: EventPayload, about: str, expected: str) -> None:
    assert words_of(payload, about) == expected
