"""Units of every kind through the whole stack: submitted by gRPC, seen in the event log."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fastvideo.api.common.v1 import work_pb2
from fastvideo.api.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from fastvideo.model.manifest import manifest_digest, read_manifest
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import UnitKind
from tests.e2e.stack import Stack, running_stack
from tests.families.pocket.checkpoint import write_checkpoint
from tests.families.served import POCKET

ROOT = Path(__file__).resolve().parents[2]
WAIT_S_MAX = 120.0
# Of both branches of a program; few enough for the context of tokens.
STEPS = 48

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "pocket")


@pytest.fixture(scope="module")
def pocket_stack(checkpoint: Path) -> Iterator[Stack]:
    """A stack that serves a family of another package beside the embedded model."""
    environment = {
        "FASTVIDEO_FAMILIES": POCKET,
        "FASTVIDEO_CHECKPOINTS": str(checkpoint.parent),
        "FASTVIDEO_MODELS": "pocket,moving-digits",
        "PYTHONPATH": str(ROOT),
    }
    with running_stack(environment=environment) as stack:
        yield stack


@pytest.fixture(scope="module")
def gateway(pocket_stack: Stack) -> Iterator[Any]:
    with grpc.insecure_channel(pocket_stack.gateway) as channel:
        yield gateway_pb2_grpc.GatewayServiceStub(channel)


def submit(
    gateway: Any,
    program: str = "",
    prompt: str = "a red fox",
    *,
    model: str = "pocket",
    peer: str = "",
    weights: str = "",
    **sampling: float,
) -> str:
    """The id of an accepted request."""
    message = gateway_pb2.SubmitRequestRequest(
        model_id=model, program_id=program, required_weights_version=weights
    )
    for role, text in (("prompt", prompt), ("peer", peer)):
        if text:
            part = message.inputs.add().text
            part.role, part.text = role, text
    for name, value in ({"seed": 1} | sampling).items():
        setattr(message.sampling, name, value)
    request_id: str = gateway.SubmitRequest(message, timeout=60).state.spec.request_id
    return request_id


def end(gateway: Any, request_id: str) -> Any:
    """The terminal event."""
    watch = gateway_pb2.WatchRequestRequest(request_id=request_id)
    for answer in gateway.WatchRequest(watch, timeout=WAIT_S_MAX):
        last = answer.event
    return last


@pytest.mark.row(
    "WUK-01",
    "WUK-02",
    "WUK-03",
    "WUK-04",
    "WUK-05",
    "WUK-06",
    "WUK-07",
    "WUK-08",
    "WUK-09",
    "WUK-10",
    "WUK-11",
    "WUK-12",
    "WUK-13",
    "WUK-14",
    "PHX-04",
)
async def test_units_of_every_kind_are_scheduled_run_and_logged(
    pocket_stack: Stack, gateway: Any
) -> None:
    asked = [
        *(submit(gateway, "tell", "tell me of a fox", steps=40, seed=seed) for seed in range(4)),
        submit(gateway, "recite", steps=8),
        submit(gateway, "check", steps=8),
        submit(gateway, "paint", steps=4),
        submit(gateway, "paint_windows", steps=6),
        submit(gateway, "paint_captured", steps=3, width=32, height=32),
        submit(gateway, "roll", steps=2, num_frames=3),
        submit(gateway, model="moving-digits", prompt="a red three moving left", steps=4),
    ]
    # The one worker is its own peer here; tests/integration/worker/test_moves.py has two.
    worker = pocket_stack.address("worker-1")
    asked.append(submit(gateway, "hand_out", peer=f"{worker}/req_moved/1"))
    names = [end(gateway, request_id).name for request_id in asked]
    taken = submit(gateway, "take_in", "unlike", peer=f"{worker}/req_moved/1", steps=3)
    asked.append(taken)
    names.append(end(gateway, taken).name)
    assert names == ["request.completed"] * len(asked)

    batches = [
        event.payload
        for event in await pocket_stack.log("scheduler-")
        if isinstance(event.payload, BatchExecuted)
    ]
    units = Counter(batch.kind for batch in batches for _ in batch.results)
    assert set(units) == set(UnitKind)
    assert units[UnitKind.AR_TOKEN] == 4 * 40 + 8 + 8
    # Decode batches are one event each, with a unit for every request in it.
    shared = [
        len({result.loop.request_id for result in batch.results})
        for batch in batches
        if batch.kind is UnitKind.AR_TOKEN
    ]
    assert max(shared) > 1
    assert all(batch.measured_seconds > 0 for batch in batches)
    assert all(not result.error for batch in batches for result in batch.results)


@pytest.mark.row("VAL-08")
def test_a_request_that_is_pinned_to_weights_runs_on_them_or_fails(
    gateway: Any, checkpoint: Path
) -> None:
    version = manifest_digest(read_manifest(checkpoint))
    pinned = end(gateway, submit(gateway, "tell", steps=2, weights=version))
    assert pinned.name == "request.completed"
    stale = end(gateway, submit(gateway, "tell", steps=2, weights="older"))
    assert stale.name == "request.failed"
    error = stale.request_failed.error
    assert (error.reason, error.subject) == ("STALE_WEIGHTS", "required_weights_version")
    assert dict(error.attributes) == {"required": "older", "found": version}


@pytest.mark.row("REQ-10")
async def test_a_cancelled_loop_ends_alone_and_the_other_branch_gives_what_it_would_have(
    pocket_stack: Stack, gateway: Any
) -> None:
    options: dict[str, Any] = {"program": "tell_and_paint", "prompt": "a green fox", "steps": STEPS}
    whole = submit(gateway, **options)
    ended = end(gateway, whole)
    assert ended.name == "request.completed", ended
    part = submit(gateway, **options)
    target = work_pb2.CancelScope(kind=work_pb2.CANCEL_SCOPE_KIND_LOOP, target_id=f"{part}/tell")
    watch = gateway.WatchRequest(
        gateway_pb2.WatchRequestRequest(request_id=part), timeout=WAIT_S_MAX
    )
    names, messages, last = [], [], None
    for answer in watch:
        last = answer.event
        names.append(last.name)
        if "request.progress" in names and "request.cancel_requested" not in names:
            gateway.CancelRequest(gateway_pb2.CancelRequestRequest(scope=target), timeout=60)
        if last.name == "request.log":
            messages.append(last.request_logged.message)
    assert names[-1] == "request.completed"
    assert messages == ["loop tell is cancelled: "]
    assert last is not None
    state = gateway.GetRequest(gateway_pb2.GetRequestRequest(request_id=part), timeout=60).state
    alone = gateway.GetRequest(gateway_pb2.GetRequestRequest(request_id=whole), timeout=60).state
    assert state.latents_digest == alone.latents_digest != ""
    ran = Counter(
        (result.loop.request_id, result.loop.node_id)
        for event in await pocket_stack.log("scheduler-")
        if isinstance(event.payload, BatchExecuted)
        for result in event.payload.results
    )
    assert ran[(whole, "denoise")] == ran[(part, "denoise")] == STEPS
    # With its prefill, whole; cut off in the middle.
    assert 0 < ran[(part, "tell")] < STEPS < ran[(whole, "tell")]
