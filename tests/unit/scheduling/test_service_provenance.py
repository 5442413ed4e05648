"""What the scheduler's events say that they are about."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from fastvideo.model.caching import CacheClass, CacheLookup, CacheOutcome
from fastvideo.requests.types import RequestMetrics, RequestSpec
from fastvideo.scheduling.events import (
    AssignLoop,
    BatchExecuted,
    CompleteRequest,
    DispatchBatch,
    ReportProgress,
    RestartRequest,
    WorkerAttached,
    WorkerLost,
)
from fastvideo.scheduling.traces import (
    CacheAccess,
    CacheAccessed,
    GraphUsed,
    MemoryReported,
    NonFiniteFound,
    ParityChecked,
)
from fastvideo.scheduling.work import LoopRef, ModelState, StepResult, UnitKind
from fastvideo_scheduler.provenance import Provenance
from tests.unit.scheduling.world import request

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)
INSTANCE = ModelState(
    model_instance_id="mi_1", weights_version="w1", adapter_versions={"style": "a1"}
)
ATTACHED = WorkerAttached(worker_id="worker-1", incarnation="i1", instances=(INSTANCE,))


@dataclass
class Live:
    specs: Mapping[str, RequestSpec]

    def spec(self, request_id: str) -> RequestSpec | None:
        return self.specs.get(request_id)

    def traceparent(self, request_id: str) -> str:
        return f"trace-of-{request_id}"


def ref(request_id: str, attempt: int = 1) -> LoopRef:
    return LoopRef(request_id=request_id, node_id="steps", attempt=attempt)


def assigned(request_id: str) -> AssignLoop:
    return AssignLoop(
        loop=ref(request_id), loop_id="denoise", worker_id="worker-1", model_instance_id="mi_1"
    )


def executed(*request_ids: str) -> BatchExecuted:
    results = tuple(StepResult(loop=ref(request_id)) for request_id in request_ids)
    return BatchExecuted(worker_id="worker-1", kind=UnitKind.DIFFUSION_STEP, results=results)


@pytest.fixture
def provenance() -> Provenance:
    """Requests a and b, both with a loop on one worker."""
    specs = {name: replace(request(name), session_id=f"ses_{name}") for name in ("a", "b")}
    made = Provenance(Live(specs))
    made.take(ATTACHED, NOW)
    for name in specs:
        made.take(assigned(name), NOW)
    return made


def test_a_step_of_one_request_says_all_of_it(provenance: Provenance) -> None:
    about = provenance.of_report(executed("a"), LATER)
    assert (about.request_id, about.session_id, about.loop_id) == ("a", "ses_a", "denoise")
    assert (about.worker_id, about.role_id, about.model_instance_id) == (
        "worker-1",
        "worker",
        "mi_1",
    )
    assert (about.traceparent, about.occurred_at) == ("trace-of-a", LATER)
    assert about.versions["weights"] == "w1"
    assert about.versions["adapter:style"] == "a1"
    assert about.versions["fastvideo"]


def test_a_shared_step_says_what_its_requests_have_in_common(provenance: Provenance) -> None:
    about = provenance.of_report(executed("a", "b"), NOW)
    assert (about.request_id, about.session_id) == ("", "")
    assert (about.model_instance_id, about.loop_id) == ("mi_1", "denoise")
    assert about.traceparent == "trace-of-a"


def test_progress_names_the_loop_that_made_it(provenance: Provenance) -> None:
    told = ReportProgress(request_id="a", node_id="steps", fraction=0.5)
    assert provenance.of_decision("a", told, NOW).loop_id == "denoise"


def test_decisions_are_about_their_requests(provenance: Provenance) -> None:
    one = DispatchBatch(kind=UnitKind.DIFFUSION_STEP, loops=(ref("a"),))
    both = DispatchBatch(kind=UnitKind.DIFFUSION_STEP, loops=(ref("a"), ref("b")))
    assert provenance.of_decisions((one,), NOW).request_id == "a"
    assert provenance.of_decisions((both,), NOW).request_id == ""
    assert provenance.of_decisions((), NOW).versions["fastvideo"]


def test_what_led_to_decisions_about_another_tenant_is_of_no_tenant() -> None:
    specs = {name: replace(request(name), tenant_id=f"of-{name}") for name in ("a", "b")}
    provenance = Provenance(Live(specs))
    about = provenance.of_report(executed("a"), NOW)
    assert about.tenant_id == "of-a"
    own = DispatchBatch(kind=UnitKind.DIFFUSION_STEP, loops=(ref("a"),))
    both = DispatchBatch(kind=UnitKind.DIFFUSION_STEP, loops=(ref("a"), ref("b")))
    assert provenance.beside(about, (own,), NOW) == about
    assert provenance.beside(about, (), NOW) == about
    for decisions in ((both,), (CompleteRequest(request_id="b", metrics=RequestMetrics()),)):
        assert provenance.beside(about, decisions, NOW) == replace(about, tenant_id="")


def test_a_request_that_begins_again_is_nowhere_until_it_is_placed(
    provenance: Provenance,
) -> None:
    provenance.take(RestartRequest(request_id="a", attempt=2), NOW)
    about = provenance.of_request("a", NOW)
    assert (about.request_id, about.worker_id, about.model_instance_id) == ("a", "", "")
    assert "weights" not in about.versions


def test_the_loss_of_an_earlier_incarnation_forgets_nothing(provenance: Provenance) -> None:
    provenance.take(WorkerLost(worker_id="worker-1", incarnation="i0"), NOW)
    provenance.take(RestartRequest(request_id="a", attempt=2), NOW)
    provenance.take(assigned("a"), NOW)
    assert provenance.of_request("a", NOW).versions["weights"] == "w1"


def test_an_ended_request_is_forgotten(provenance: Provenance) -> None:
    provenance.take(CompleteRequest(request_id="a", metrics=RequestMetrics()), NOW)
    assert provenance.of_report(executed("a"), NOW).loop_id == ""


def looked(*request_ids: str) -> CacheAccessed:
    lookup = CacheLookup(cache_class=CacheClass.TEXT_ENCODER_OUTPUT, outcome=CacheOutcome.HIT)
    return CacheAccessed(
        worker_id="worker-1",
        accesses=tuple(CacheAccess(request_id=name, lookup=lookup) for name in request_ids),
    )


def test_a_note_of_one_request_says_all_of_it(provenance: Provenance) -> None:
    report = provenance.of_report(executed("a", "b"), LATER)
    about = provenance.of_note(NonFiniteFound(request_id="b", node_id="steps"), report, LATER)
    assert (about.request_id, about.session_id, about.loop_id) == ("b", "ses_b", "denoise")
    assert (about.worker_id, about.role_id, about.model_instance_id) == (
        "worker-1",
        "worker",
        "mi_1",
    )
    assert (about.traceparent, about.occurred_at) == ("trace-of-b", LATER)
    assert about.versions["weights"] == "w1"


def test_a_note_of_a_shared_batch_says_what_its_requests_have_in_common(
    provenance: Provenance,
) -> None:
    report = provenance.of_report(executed("a", "b"), LATER)
    about = provenance.of_note(looked("a", "b"), report, LATER)
    assert (about.request_id, about.session_id) == ("", "")
    assert (about.model_id, about.model_instance_id) == (report.model_id, "mi_1")
    assert (about.loop_id, about.worker_id) == ("denoise", "worker-1")


def test_a_note_of_an_instance_says_its_model_and_weights(provenance: Provenance) -> None:
    instance = replace(INSTANCE, model_id="m")
    provenance.take(replace(ATTACHED, instances=(instance,)), NOW)
    report = provenance.of_report(executed("a"), LATER)
    for note in (GraphUsed(model_instance_id="mi_1"), ParityChecked(model_id="m")):
        about = provenance.of_note(note, report, LATER)
        assert (about.request_id, about.loop_id) == ("", "")
        assert (about.model_id, about.model_instance_id) == ("m", "mi_1")
        assert about.versions["weights"] == "w1"
        assert (about.worker_id, about.traceparent) == ("worker-1", "trace-of-a")


def test_a_note_of_a_machine_says_the_worker_alone(provenance: Provenance) -> None:
    report = provenance.of_report(executed("a"), LATER)
    about = provenance.of_note(MemoryReported(pool="caches"), report, LATER)
    assert (about.request_id, about.model_id, about.worker_id) == ("", "", "worker-1")
