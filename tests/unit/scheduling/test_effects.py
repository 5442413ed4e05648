"""What users see of decisions."""

from fastvideo.requests.events import RequestLogged
from fastvideo.scheduling.effects import request_event
from fastvideo.scheduling.events import DeferLoop, RestartRequest
from fastvideo.scheduling.work import LoopRef


def test_a_request_that_begins_again_says_why() -> None:
    decision = RestartRequest(request_id="req_1", attempt=2, reason="worker w1 was lost: silent")
    assert request_event(decision) == (
        "req_1",
        RequestLogged(
            level="warning", message="begins again: worker w1 was lost: silent", attempt=2
        ),
    )


def test_what_only_the_scheduler_cares_about_is_no_event_of_the_request() -> None:
    loop = LoopRef(request_id="req_1", node_id="denoise", attempt=1)
    assert request_event(DeferLoop(loop=loop, reason="compute")) is None
