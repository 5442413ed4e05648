"""Every category of event that the design asks for, in the log of one traced run."""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from fastvideo import wire
from fastvideo.api.common.v1 import request_pb2, work_pb2
from fastvideo.api.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.artifacts.events import ArtifactCompleted, ArtifactCreated
from fastvideo.cache.keys import key_digest
from fastvideo.events.types import Event
from fastvideo.media.tensors import encode_tensors
from fastvideo.model.caching import CacheClass, CacheKey, CacheOutcome, CacheRecord
from fastvideo.requests.events import (
    RequestAccepted,
    RequestCancelled,
    RequestCancelRequested,
    RequestCompleted,
    RequestStarted,
)
from fastvideo.scheduling.events import (
    AssignLoop,
    BatchExecuted,
    Decision,
    DispatchBatch,
    SchedulerDecided,
    StartRequest,
)
from fastvideo.scheduling.traces import (
    CacheAccess,
    CacheAccessed,
    ComponentsTraced,
    GraphUsed,
    MemoryReported,
    ParityChecked,
    TransferRecorded,
    TransferState,
    WeightsChanged,
)
from fastvideo.sessions.events import SessionClosed, SessionCreated
from tests.e2e.stack import Stack, poll, running_stack
from tests.e2e.test_kinds import end, submit
from tests.families.pocket.checkpoint import write_checkpoint
from tests.families.served import POCKET

ROOT = Path(__file__).resolve().parents[2]
DIGITS = "moving-digits"
PROMPT = "a red three moving left, of every category"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of its own: what happens here is all that its log has."""
    checkpoint = write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "pocket")
    environment = {
        "FASTVIDEO_FAMILIES": POCKET,
        "FASTVIDEO_CHECKPOINTS": str(checkpoint.parent),
        "FASTVIDEO_MODELS": "pocket,moving-digits",
        "PYTHONPATH": str(ROOT),
    }
    with running_stack(environment=environment) as stack:
        yield stack


@pytest.fixture(scope="module")
def gateway(traced: Stack) -> Iterator[Any]:
    with grpc.insecure_channel(traced.gateway) as channel:
        yield gateway_pb2_grpc.GatewayServiceStub(channel)


@pytest.fixture(scope="module")
def worker(traced: Stack) -> Iterator[Any]:
    with grpc.insecure_channel(traced.address("worker-1")) as channel:
        yield worker_pb2_grpc.WorkerServiceStub(channel)


def generate_in_detail(gateway: Any, session_id: str = "") -> str:
    message = gateway_pb2.SubmitRequestRequest(model_id=DIGITS, session_id=session_id)
    part = message.inputs.add().text
    part.role, part.text = "prompt", PROMPT
    message.sampling.seed, message.sampling.steps = 5, 2
    message.outputs.video = True
    message.outputs.trace = request_pb2.TRACE_LEVEL_DETAIL
    request_id: str = gateway.SubmitRequest(message, timeout=60).state.spec.request_id
    return request_id


def cancel(gateway: Any, request_id: str) -> None:
    scope = work_pb2.CancelScope(kind=work_pb2.CANCEL_SCOPE_KIND_REQUEST, target_id=request_id)
    gateway.CancelRequest(gateway_pb2.CancelRequestRequest(scope=scope), timeout=60)


@pytest.fixture(scope="module")
def log(traced: Stack, gateway: Any, worker: Any) -> list[Event]:
    """The log of a run in which everything happens once."""
    session_id = traced.run("session", "create", "--json").json["session_id"]
    first, again = (generate_in_detail(gateway, session_id) for _ in range(2))
    for request_id in (first, again):
        assert end(gateway, request_id).name == "request.completed"
    captured = submit(gateway, "paint_captured", steps=2, width=32, height=32)
    assert end(gateway, captured).name == "request.completed"
    address = traced.address("worker-1")
    moved = submit(gateway, "hand_out", peer=f"{address}/req_moved/1")
    assert end(gateway, moved).name == "request.completed"
    lost = submit(gateway, "hand_out", peer="127.0.0.1:1/req_moved/1")
    assert end(gateway, lost).name == "request.failed"
    stopped = submit(gateway, model=DIGITS, prompt=PROMPT, steps=200)
    cancel(gateway, stopped)
    assert end(gateway, stopped).name == "request.cancelled"
    assert traced.run("session", "close", session_id, "--json").code == 0
    # What is told next to nothing waits for a report; the last request brings it.
    worker.Sleep(worker_pb2.SleepRequest(tags=["caches"]), timeout=30)
    worker.Wake(worker_pb2.WakeRequest(tags=["caches"]), timeout=30)
    last = submit(gateway, model=DIGITS, prompt=PROMPT, steps=1)
    assert end(gateway, last).name == "request.completed"
    return asyncio.run(traced.log(""))


def payloads(log: Sequence[Event], *types: type) -> list[Any]:
    return [event.payload for event in log if isinstance(event.payload, types)]


def decisions(log: Sequence[Event], *types: type[Decision]) -> list[Any]:
    return [
        decision
        for decided in payloads(log, SchedulerDecided)
        for decision in decided.decisions
        if isinstance(decision, types)
    ]


def accesses(log: Sequence[Event]) -> list[CacheAccess]:
    return [access for note in payloads(log, CacheAccessed) for access in note.accesses]


CATEGORIES: dict[str, Callable[[Sequence[Event]], bool]] = {
    "request lifecycle": lambda log: all(
        payloads(log, kind) for kind in (RequestAccepted, RequestStarted, RequestCompleted)
    ),
    "session lifecycle": lambda log: all(
        payloads(log, kind) for kind in (SessionCreated, SessionClosed)
    ),
    "scheduler decisions": lambda log: bool(payloads(log, SchedulerDecided)),
    "admission decisions": lambda log: bool(decisions(log, StartRequest, AssignLoop)),
    "batch composition": lambda log: bool(decisions(log, DispatchBatch)),
    "loop step timing": lambda log: any(
        result.measured_seconds > 0
        for executed in payloads(log, BatchExecuted)
        for result in executed.results
    ),
    "component timing": lambda log: any(
        component.seconds > 0
        for traced in payloads(log, ComponentsTraced)
        for component in traced.components
    ),
    "cache lookup/hit/miss/evict": lambda log: (
        {access.lookup.outcome for access in accesses(log)} == set(CacheOutcome)
    ),
    "transfer start/complete/fail": lambda log: (
        {move.state for move in payloads(log, TransferRecorded)} == set(TransferState)
    ),
    "memory reservation and pressure": lambda log: bool(payloads(log, MemoryReported)),
    "graph capture and replay": lambda log: bool(payloads(log, GraphUsed)),
    "weight version changes": lambda log: bool(payloads(log, WeightsChanged)),
    "parity check results": lambda log: bool(payloads(log, ParityChecked)),
    "artifact publication": lambda log: all(
        payloads(log, kind) for kind in (ArtifactCreated, ArtifactCompleted)
    ),
    "cancellation and interruption": lambda log: all(
        payloads(log, kind) for kind in (RequestCancelRequested, RequestCancelled)
    ),
}


@pytest.mark.row("OBS-01", "EVT-18", "EVT-19", "EVT-20", "EVT-21")
def test_all_fifteen_categories_are_in_the_log_of_one_traced_run(log: list[Event]) -> None:
    assert len(CATEGORIES) == 15
    missing = [name for name, is_there in CATEGORIES.items() if not is_there(log)]
    seen = sorted({event.name for event in log})
    assert not missing, f"{missing} not in {seen}"


def test_every_look_can_be_derived_again_and_a_hit_is_on_what_was_kept(
    log: list[Event],
) -> None:
    kept: dict[str, str] = {}
    hits = 0
    for access in accesses(log):
        lookup = access.lookup
        assert access.key is not None
        assert lookup.key_digest == key_digest(access.key)
        if lookup.outcome is CacheOutcome.KEPT:
            assert kept.setdefault(lookup.key_digest, lookup.value_digest) == lookup.value_digest
        if lookup.outcome is CacheOutcome.HIT and lookup.value_digest:
            hits += 1
            assert kept[lookup.key_digest] == lookup.value_digest
    assert hits


def test_there_is_one_event_of_looks_a_report(log: list[Event]) -> None:
    by_report: defaultdict[str, int] = defaultdict(int)
    for event in log:
        if isinstance(event.payload, CacheAccessed):
            by_report[event.metadata.causation_id] += 1
    reports = {e.event_id for e in log if e.type in ("BatchExecuted", "LoopPrepared")}
    assert set(by_report) <= reports
    assert set(by_report.values()) == {1}


def test_moves_say_what_moved_and_why_they_failed(log: list[Event]) -> None:
    moves = payloads(log, TransferRecorded)
    done = [move for move in moves if move.state is TransferState.COMPLETED]
    # The unit's own, and those of the worker that took it in.
    assert {bool(move.unit_id) for move in done} == {True, False}
    for move in done:
        assert move.size_bytes > 0
        assert [tensor.name for tensor in move.manifest.tensors] == ["encode.text_features"]
    failed = [move for move in moves if move.state is TransferState.FAILED]
    assert failed
    assert all(move.error is not None and move.error.reason for move in failed)


@pytest.mark.row("OBS-03")
def test_a_move_is_in_the_trace_of_its_request_on_both_sides(
    traced: Stack, log: list[Event]
) -> None:
    [moved] = {
        move.request_id
        for move in payloads(log, TransferRecorded)
        if move.unit_id and move.state is TransferState.COMPLETED
    }

    def sent() -> Any:
        """The batch that sent it, once each process has told of its spans."""
        outcome = traced.run("trace", moved, "--json")
        assert outcome.code == 0, outcome.err
        batches = [
            node
            for node in nodes(outcome.json["roots"])
            if (node["name"], node["detail"]) == ("worker.batch", "transfer_send")
        ]
        return next((batch for batch in batches if batch["children"]), None)

    under = nodes(poll("the move is in the trace", sent, timeout_s=120)["children"])
    [taken] = [node for node in under if node["name"].endswith("/Transfer")]
    assert taken["service"] == "worker"


def nodes(roots: Any) -> list[Any]:
    return [found for node in roots for found in (node, *nodes(node["children"]))]


@pytest.mark.row("OBS-02")
def test_notes_say_whose_they_are(log: list[Event]) -> None:
    submitted = {
        event.metadata.request_id: event.metadata
        for event in log
        if isinstance(event.payload, RequestAccepted)
    }
    seen = set()
    for event in log:
        about = event.metadata
        if isinstance(event.payload, CacheAccessed | ComponentsTraced | TransferRecorded):
            if not about.request_id or about.request_id not in submitted:
                continue
            seen.add(event.type)
            known = submitted[about.request_id]
            assert about.session_id == known.session_id
            assert about.program_id == known.program_id
            assert about.model_id == known.model_id
            assert about.model_instance_id
            assert about.loop_id
            assert (about.worker_id, about.role_id) == ("worker-1", "worker")
            assert about.traceparent
            assert {"fastvideo", "weights"} <= set(about.versions)
            assert about.occurred_at
        elif isinstance(event.payload, WeightsChanged | ParityChecked | GraphUsed):
            seen.add(event.type)
            assert about.model_id
            assert about.model_instance_id
            assert (about.worker_id, about.role_id) == ("worker-1", "worker")
            assert {"fastvideo", "weights"} <= set(about.versions)
    assert len(seen) == 6


def test_a_wrong_value_in_a_cache_is_found_by_replay(
    traced: Stack, gateway: Any, worker: Any, log: list[Event]
) -> None:
    sound = submit(gateway, model=DIGITS, prompt=PROMPT, steps=1)
    assert end(gateway, sound).name == "request.completed"
    outcome = traced.run("replay", "cache", sound, "--json")
    assert outcome.code == 0, outcome.err
    key = _prompt_key(log)
    value = encode_tensors({"value": torch.full((32, 64), 0.25)})
    record = CacheRecord(
        key=key,
        key_digest=key_digest(key),
        cache_class=CacheClass.TEXT_ENCODER_OUTPUT,
        value_digest=hashlib.sha256(value).hexdigest(),
        size_bytes=len(value),
    )
    published = worker.PublishCache(
        worker_pb2.PublishCacheRequest(record=wire.to_proto(record), value=value), timeout=30
    )
    assert published.stored
    spoiled = submit(gateway, model=DIGITS, prompt=PROMPT, steps=1)
    assert end(gateway, spoiled).name == "request.completed"
    outcome = traced.run("replay", "cache", spoiled, "--json")
    assert outcome.code == 1, outcome.err
    report = outcome.json
    assert report["equal"] is False
    found = report["first_divergence"]
    assert found["component"] == "text_encoder"
    assert "another value" in found["detail"]
    worker.Sleep(worker_pb2.SleepRequest(tags=["caches"]), timeout=30)


def _prompt_key(log: Sequence[Event]) -> CacheKey:
    """The key of the prompt's features, as the log has it."""
    kept = [a for a in accesses(log) if a.lookup.outcome is CacheOutcome.KEPT and a.key]
    digits = [a.key for a in kept if a.key is not None and a.key.model_id == DIGITS]
    return digits[0]


@pytest.mark.row("OBS-06")
def test_parity_results_and_weight_changes_are_events_in_the_stream_of_their_model(
    traced: Stack,
) -> None:
    options = ("--steps", "2", "--seed", "0", "--json")
    outcome = traced.run("parity", DIGITS, "--record", *options)
    assert outcome.code == 0, outcome.err
    told = {check["subject"] for check in outcome.json}
    events = asyncio.run(traced.log(f"model-{DIGITS}"))
    kept = [event for event in events if isinstance(event.payload, ParityChecked)]
    checks = payloads(events, ParityChecked)
    assert {check.subject for check in checks} == told >= {"transformer", "vae"}
    assert all(check.passed for check in checks)
    assert {event.name for event in kept} == {"parity.checked"}
    assert {event.metadata.model_id for event in kept} == {DIGITS}
    changed = [event for event in events if isinstance(event.payload, WeightsChanged)]
    assert changed
    assert {event.name for event in changed} == {"weights.changed"}
    for event in changed:
        assert isinstance(event.payload, WeightsChanged)
        assert event.payload.to_version == event.metadata.versions["weights"]
        assert event.metadata.model_id == DIGITS
        assert event.metadata.worker_id == "worker-1"
