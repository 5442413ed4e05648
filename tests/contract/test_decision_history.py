"""A recorded scheduler decides every decision again, over a lost worker and a change of leader.

A change of how the scheduler decides breaks this on purpose: then `decisions.jsonl.gz` is
recorded anew, and the change is told in the changelog.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fastvideo import wire
from fastvideo.deployment.catalog import Catalog
from fastvideo.events.catalog import payload_of
from fastvideo.events.records import StoredEvent
from fastvideo.replay.decisions import DecisionSource, replay_decisions
from fastvideo.replay.logged_run import read_logged_run
from fastvideo.replay.types import ReplayKind, ReplayReport, ReplayRequest
from fastvideo.requests.events import RequestAccepted
from fastvideo.requests.types import RequestStatus
from fastvideo.scheduling.deployed import DeployedModels
from fastvideo.scheduling.events import (
    DispatchBatch,
    LeaderElected,
    SchedulerDecided,
    WorkerLost,
)
from tests.contract.histories import files
from tests.contract.histories.log import HistoryLog

SHARD = "0"
MODEL = "moving-digits"


@pytest.fixture(scope="module")
def events() -> list[StoredEvent]:
    return files.read("decisions")


async def replayed(events: Sequence[StoredEvent], subject: str = "") -> ReplayReport:
    catalog = Catalog.load(models=(MODEL,))
    source = DecisionSource(
        log=HistoryLog(events),
        shard=SHARD,
        models=DeployedModels(catalog),
        cards={entry.card.model_id: entry.card_digest for entry in catalog.entries},
    )
    request = ReplayRequest(kind=ReplayKind.DECISION, subject_id=subject)
    return await replay_decisions(source, request, lambda _: None)


def requests(events: Sequence[StoredEvent]) -> list[str]:
    found = [payload_of(event) for event in events if event.type == RequestAccepted.__name__]
    return [one.spec.request_id for one in found if isinstance(one, RequestAccepted)]


async def test_every_decision_is_made_again(events: list[StoredEvent]) -> None:
    kinds = [event.type for event in events]
    assert kinds.count(LeaderElected.__name__) == 2
    assert WorkerLost.__name__ in kinds
    report = await replayed(events)
    assert report.equal, report.first_divergence
    assert report.compared == kinds.count(SchedulerDecided.__name__)


async def test_the_decisions_about_each_request_are_made_again(events: list[StoredEvent]) -> None:
    for request_id in requests(events):
        report = await replayed(events, request_id)
        assert report.equal, report.first_divergence


async def test_an_altered_decision_is_found(events: list[StoredEvent]) -> None:
    """One batch in the middle was granted one step more than the scheduler granted it."""
    number, at, decided = [
        (number, index, payload)
        for number, (index, payload) in enumerate(decisions(events), start=1)
        if any(isinstance(one, DispatchBatch) for one in payload.decisions)
    ][10]
    made = tuple(
        replace(one, window=one.window + 1) if isinstance(one, DispatchBatch) else one
        for one in decided.decisions
    )
    payload = wire.encode(replace(decided, decisions=made))
    altered = [*events[:at], events[at]._replace(payload=payload), *events[at + 1 :]]
    report = await replayed(altered)
    assert report.first_divergence is not None
    assert report.first_divergence.subject == f"decision {number}"
    assert report.first_divergence.event_id == events[at].event_id
    assert ".window was" in report.first_divergence.detail


async def test_every_run_can_be_read(events: list[StoredEvent]) -> None:
    log = HistoryLog(events)
    statuses = set()
    for request_id in requests(events):
        run = await read_logged_run(log, request_id, SHARD)
        statuses.add(run.status)
        assert len({step.unit_id for step in run.steps}) == len(run.steps)
        if run.status is RequestStatus.COMPLETED:
            steps = [step for step in run.steps if step.node_id == "denoise"]
            assert [step.step_range.stop for step in steps] == list(
                range(1, run.spec.sampling.steps + 1)
            )
            assert run.instance.weights_version
            assert run.fingerprint
    assert statuses == {RequestStatus.COMPLETED, RequestStatus.CANCELLED}


def decisions(events: Sequence[StoredEvent]) -> list[tuple[int, SchedulerDecided]]:
    found = []
    for index, event in enumerate(events):
        payload = payload_of(event) if event.type == SchedulerDecided.__name__ else None
        if isinstance(payload, SchedulerDecided):
            found.append((index, payload))
    return found
