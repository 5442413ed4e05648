"""What a request's events look like on standard error."""

from datetime import UTC, datetime

import pytest

from fastvideo.cli.progress import LineView, progress_view
from fastvideo.events.types import Event, EventMetadata, EventPayload
from fastvideo.requests.events import (
    RequestCompleted,
    RequestProgressed,
    RequestQueued,
    RequestStarted,
)
from fastvideo.requests.types import RequestMetrics

AT = datetime(2026, 1, 1, tzinfo=UTC)


def event(payload: EventPayload) -> Event:
    return Event(metadata=EventMetadata(occurred_at=AT), recorded_at=AT, payload=payload)


def test_without_a_terminal_there_is_a_line_a_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    view = progress_view()
    assert isinstance(view, LineView)
    with view:
        view.show(event(RequestQueued(position=2, reason="compute")))
        view.show(event(RequestStarted(attempt=1)))
        for step in range(1, 41):
            view.show(
                event(RequestProgressed(fraction=step / 40, node_id="denoise", step=step, steps=40))
            )
        view.show(event(RequestCompleted(metrics=RequestMetrics())))
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["queued, place 2: compute", "started"]
    assert lines[-1] == "100% denoise 40/40"
    assert len(lines) <= 2 + 10


def test_a_restart_tells_its_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    LineView().show(event(RequestStarted(attempt=2)))
    assert capsys.readouterr().err == "started, attempt 2\n"
