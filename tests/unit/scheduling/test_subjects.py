"""Whom decisions are about."""

from fastvideo.scheduling.events import (
    AssignLoop,
    DispatchBatch,
    RestartRequest,
    YieldBatch,
)
from fastvideo.scheduling.subjects import requests_of_decision
from fastvideo.scheduling.work import LoopRef, UnitKind


def test_each_request_of_a_decision_is_named_once() -> None:
    loops = tuple(LoopRef(request_id=id_, node_id="n") for id_ in ("r1", "r2", "r1"))
    assert requests_of_decision(DispatchBatch(kind=UnitKind.DIFFUSION_STEP, loops=loops)) == (
        "r1",
        "r2",
    )
    assert requests_of_decision(AssignLoop(loop=loops[1])) == ("r2",)
    assert requests_of_decision(RestartRequest(request_id="r3")) == ("r3",)
    assert requests_of_decision(YieldBatch(batch_id="b")) == ()
