"""Requests that are pinned to weights: placed where they are, refused where they are gone."""

from dataclasses import replace

from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.events import AssignLoop, FailRequest, WorkerAttached, WorkerLost
from fastvideo.scheduling.inputs import RequestSubmitted
from fastvideo.scheduling.work import ModelState
from tests.unit.scheduling.world import MODEL, START, Catalog, request


def pinned(request_id, weights, **fields):
    return replace(request(request_id, **fields), required_weights_version=weights)


def submit(core, spec):
    return core.decide(RequestSubmitted(spec=spec), START)


def attach(core, worker_id, weights):
    instance = ModelState(
        model_instance_id=f"{worker_id}/{weights}", model_id=MODEL, weights_version=weights
    )
    attached = WorkerAttached(
        worker_id=worker_id,
        incarnation=f"{worker_id}#{weights}",
        instances=(instance,),
        memory_bytes={"activations": 1_000},
        compute_slots=1,
        io_slots=1,
    )
    return core.decide(attached, START)


def of(kind, decisions):
    return [decision for decision in decisions if isinstance(decision, kind)]


def test_a_pinned_request_is_assigned_to_the_worker_with_its_weights():
    core = SchedulerCore(Catalog())
    attach(core, "w1", "old")
    attach(core, "w2", "new")
    [assigned] = of(AssignLoop, submit(core, pinned("r", "new")))
    assert (assigned.worker_id, assigned.model_instance_id) == ("w2", "w2/new")


def test_it_fails_at_once_where_only_other_weights_are():
    core = SchedulerCore(Catalog())
    attach(core, "w1", "old")
    [failed] = of(FailRequest, submit(core, pinned("r", "new")))
    assert failed.error.reason == "STALE_WEIGHTS"
    assert failed.error.attributes == {"required": "new", "found": "old"}
    assert core.live_requests == 0


def test_it_waits_while_no_worker_has_the_model_and_fails_when_one_comes_with_other_weights():
    core = SchedulerCore(Catalog())
    assert not of(FailRequest, submit(core, pinned("r", "new")))
    other = submit(core, request("anyone"))
    assert not of(FailRequest, other)
    decisions = attach(core, "w1", "old")
    assert [failed.request_id for failed in of(FailRequest, decisions)] == ["r"]
    assert [assigned.loop.request_id for assigned in of(AssignLoop, decisions)] == ["anyone"]
    assert core.queued_requests == 0


def test_one_that_lost_its_worker_waits_for_its_weights_to_come_back():
    core = SchedulerCore(Catalog())
    attach(core, "w1", "new")
    attach(core, "w2", "old")
    assert of(AssignLoop, submit(core, pinned("r", "new")))
    lost = core.decide(WorkerLost(worker_id="w1", incarnation="w1#new"), START)
    assert not of(FailRequest, lost)
    assert core.queued_requests == 1
    [again] = of(AssignLoop, attach(core, "w3", "new"))
    assert again.worker_id == "w3"
