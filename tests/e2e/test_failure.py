"""A request that fails says why, in every place where one may look."""

from datetime import UTC, datetime, timedelta

import pytest

from fastvideo.client import AsyncClient
from fastvideo.errors import FastVideoError
from fastvideo.events.types import Event
from fastvideo.requests.events import RequestFailed
from fastvideo.requests.types import RequestStatus, SamplingOverrides
from tests.e2e.stack import Stack


def _soon() -> datetime:
    """Late enough to be accepted on a busy machine, and too soon for so many large steps."""
    return datetime.now(UTC) + timedelta(seconds=5)


@pytest.mark.row("EVT-06")
async def test_a_request_past_its_deadline_fails_with_a_typed_error(stack: Stack) -> None:
    events: list[Event] = []
    prompt, sampling = (
        "a red three moving left",
        SamplingOverrides(steps=1000, width=128, height=128, seed=1),
    )
    async with AsyncClient(stack.gateway) as client:
        submitted = await client.submit(prompt, sampling=sampling, deadline=_soon())
        request_id = submitted.spec.request_id
        with pytest.raises(FastVideoError) as caught:
            await client.generate(prompt, sampling=sampling, deadline=_soon())
        state = await client.wait(request_id, on_event=events.append)
    assert state.status is RequestStatus.FAILED
    failed = events[-1].payload
    assert isinstance(failed, RequestFailed)
    assert failed.error.reason == "DEADLINE_EXCEEDED"
    assert failed.error.message
    assert caught.value.reason == "DEADLINE_EXCEEDED"

    record = stack.run("request", "get", request_id, "--json").json
    assert (record["status"], record["artifacts"]) == ("failed", [])
    assert record["error"]["reason"] == "DEADLINE_EXCEEDED"
    assert set(record["error"]) == {"reason", "message", "subject", "attributes"}
