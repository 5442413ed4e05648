"""Why a request took so long, asked of the running stack."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from fastvideo.client import AsyncClient
from fastvideo.errors import NotFound
from fastvideo.explain.types import Explanation, UnitOutcome
from fastvideo.requests.types import RequestState, SamplingOverrides
from fastvideo.scheduling.events import BatchExecuted
from tests.e2e.stack import Stack

ASKED = [("a red three moving left", 8), ("blue digit seven moves up", 5), ("a green two", 11)]
ASKED += [("a yellow zero moving up", 6), ("the six is red and moves right", 9)]


Told = Mapping[str, tuple[RequestState, Explanation]]


@pytest.fixture(scope="module")
def explained(stack: Stack) -> Told:
    """Requests that ran at once, each with its explanation."""
    return asyncio.run(_explained(stack.gateway))


async def _explained(gateway: str) -> Told:
    async with AsyncClient(gateway) as client:

        async def run(asked: tuple[str, int]) -> RequestState:
            prompt, steps = asked
            sampling = SamplingOverrides(steps=steps, seed=steps)
            return await client.generate(prompt, sampling=sampling)

        states = await asyncio.gather(*map(run, ASKED))
        return {
            state.spec.request_id: (state, await client.explain(state.spec.request_id))
            for state in states
        }


def test_the_sums_of_the_units_are_the_request_s_metrics(explained: Told) -> None:
    for state, told in explained.values():
        metrics = state.metrics
        assert metrics is not None
        assert len(told.units) == told.unit_count == metrics.units
        of_units = sum(unit.device_seconds for unit in told.units)
        assert of_units == pytest.approx(metrics.device_seconds, rel=1e-3, abs=1e-3)
        sums = told.totals
        parts = sum(sums.waited_by_cause.values()) + sums.device_busy_seconds + sums.io_seconds
        assert parts == pytest.approx(sums.total_seconds, abs=1e-3)
        assert sums.total_seconds == pytest.approx(metrics.total_seconds, rel=0.1, abs=3.0)
        for unit in told.units:
            assert unit.ready_at is not None
            assert unit.started_at is not None
            waited = (unit.started_at - unit.ready_at).total_seconds()
            assert unit.waited_seconds == pytest.approx(waited, abs=1e-3)
            assert sum(wait.seconds for wait in unit.waits) == pytest.approx(waited, abs=1e-3)


def test_who_shared_a_unit_says_so_too(explained: Told) -> None:
    pairs = {
        (request_id, mate, unit.batch_id, unit.window_position)
        for request_id, (_, told) in explained.items()
        for unit in told.units
        for mate in unit.shared_with
        if mate in explained
    }
    assert pairs, "nothing was shared"
    assert {(mate, mine, batch, place) for mine, mate, batch, place in pairs} == pairs


async def test_every_unit_that_a_worker_reported_is_told_once(
    stack: Stack, explained: Told
) -> None:
    ran: Counter[str] = Counter()
    for event in await stack.log("scheduler-"):
        if isinstance(event.payload, BatchExecuted):
            ran.update(
                result.unit_id
                for result in event.payload.results
                if result.loop.request_id in explained
            )
    told = Counter(unit.unit_id for _, one in explained.values() for unit in one.units)
    assert told == ran
    outcomes = {unit.outcome for _, one in explained.values() for unit in one.units}
    assert outcomes == {UnitOutcome.DONE}


def test_the_command_line_tells_and_draws_it(stack: Stack, explained: Told, tmp_path: Path) -> None:
    request_id, (_, told) = next(iter(explained.items()))
    picture = tmp_path / "why.png"
    outcome = stack.run("explain", request_id, "--units", "--png", str(picture))
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[0].startswith(f"{request_id}  completed  moving-digits")
    assert lines[1] == told.headline
    assert sum(line.startswith("denoise ") for line in lines) > len(ASKED)
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    as_json = stack.run("explain", request_id, "--json")
    record = json.loads(as_json.out)
    assert record["headline"] == told.headline
    assert len(record["units"]) == told.unit_count


async def test_a_request_is_explained_while_it_runs(stack: Stack) -> None:
    async with AsyncClient(stack.gateway) as client:
        # So long that it is cancelled before it ends.
        sampling = SamplingOverrides(steps=1000, seed=1)
        state = await client.submit("a blue seven moving up", sampling=sampling)
        request_id = state.spec.request_id
        async with asyncio.timeout(60):
            while not (told := await client.explain(request_id)).totals.units:
                await asyncio.sleep(0.02)
        assert told.ended_at is None
        assert told.headline.startswith(("runs", "waits"))
        await client.cancel(request_id)
        await client.wait(request_id)
        ended = await client.explain(request_id)
    assert ended.attempts[-1].end.startswith("cancelled")
    assert ended.waiting is None


async def test_a_request_that_does_not_exist_is_not_found(stack: Stack) -> None:
    async with AsyncClient(stack.gateway) as client:
        with pytest.raises(NotFound):
            await client.explain("req_nobody")
    outcome = stack.run("explain", "req_nobody")
    assert outcome.code == 1
    assert "req_nobody does not exist" in outcome.err
