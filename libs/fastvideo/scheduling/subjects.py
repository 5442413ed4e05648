"""Whom a decision is about."""

from fastvideo.scheduling.events import (
    AssignLoop,
    CancelLoop,
    Decision,
    DeferLoop,
    DispatchBatch,
    YieldBatch,
)


def requests_of_decision(decision: Decision) -> tuple[str, ...]:
    """The requests that a decision is about, each once; none for one about a batch alone."""
    match decision:
        case AssignLoop() | DeferLoop() | CancelLoop():
            named = [decision.loop.request_id]
        case DispatchBatch():
            named = [loop.request_id for loop in decision.loops]
        case YieldBatch():
            named = []
        case _:
            named = [decision.request_id]
    return tuple(dict.fromkeys(filter(None, named)))
