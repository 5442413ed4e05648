"""Values between a worker and an engine in another process, by scheduled and priced units."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from fastvideo import wire
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.engine.engine import Engine
from fastvideo.errors import FastVideoError
from fastvideo.media.tensors import decode_tensors
from fastvideo.model.transfers import TransferManifest, TransferTensor
from fastvideo.requests.types import TextPart
from fastvideo.scheduling.work import UnitKind
from tests.families.pocket.checkpoint import write_checkpoint
from tests.families.pocket.loops.transfer import PEER, SIZE_BYTES, VALUE
from tests.families.served import POCKET, run

PROMPT = "a red fox"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(folder / "pocket")
    with Engine(("pocket",), checkpoints=folder, threads=1, families=(POCKET,)) as engine:
        yield engine


def moving(program: str, address: str, scope: str, **options: Any) -> dict[str, Any]:
    peer = TextPart(role=PEER, text=f"{address}/{scope}")
    return {"program": program, "prompt": PROMPT, "inputs": (peer,), "seed": 3} | options


@pytest.mark.row("WUK-10", "SCH-19")
def test_a_value_goes_to_another_worker_and_comes_back_by_priced_units(
    engine: Engine, worker: Any
) -> None:
    [[sent], sending] = run(engine, moving("hand_out", worker.address, "req_moved/1"))
    [ran] = [ran for ran in sending.batches if ran.kind is UnitKind.TRANSFER_SEND]
    # Admitted against the budget of bytes on their way, beside compute, at a price.
    assert ran.reserved["transfer_bytes"] == ran.reserved["staging_bytes"] == SIZE_BYTES
    assert ran.thread.startswith("engine-io")
    assert ran.executed.predicted_seconds == pytest.approx(SIZE_BYTES * 1e-6)

    # The other process holds the very tensor.
    held = _held(worker.address, "req_moved/1")
    told = sending.named(sent.request_id)
    assert tuple(held.shape) == (2, 16, 32)

    # A request of this engine takes it in and goes on with the bits of one that had it here.
    taking = moving("take_in", worker.address, "req_moved/1", steps=4)
    taking["prompt"] = "not this prompt"
    [[taken], receiving] = run(engine, taking)
    kinds = receiving.kinds(taken.request_id)
    assert kinds[0] is UnitKind.TRANSFER_RECV
    assert UnitKind.ENCODER_CHUNK not in kinds
    named = receiving.named(taken.request_id)
    assert named["receive.text_features"] == told["encode.text_features"]
    [[here], local] = run(engine, {"program": "paint", "prompt": PROMPT, "seed": 3, "steps": 4})
    assert named["denoise.latents"] == local.named(here.request_id)["denoise.latents"]

    # What a move took is learned, by the byte, in the one cost model.
    costs = {entry.phase: entry for entry in engine.deployment_card().cost_model.entries}
    assert costs["transfer_send"].samples == costs["transfer_recv"].samples == 1
    assert costs["transfer_send"].shape == str(SIZE_BYTES)
    [_, again] = run(engine, moving("hand_out", worker.address, "req_moved/2"))
    [ran] = [ran for ran in again.batches if ran.kind is UnitKind.TRANSFER_SEND]
    assert ran.executed.predicted_seconds == pytest.approx(costs["transfer_send"].seconds)
    assert engine._core.reserved["transfer_bytes"] == 0


def test_a_value_that_is_not_there_fails_its_request_alone(engine: Engine, worker: Any) -> None:
    before = engine.memory_bytes
    with pytest.raises(FastVideoError):
        run(engine, moving("take_in", worker.address, "req_nobody/1"))
    assert engine.memory_bytes == before
    assert engine._core.reserved["transfer_bytes"] == 0


def _held(address: str, scope: str) -> Any:
    manifest = TransferManifest(
        transfer_id="look", tensors=(TransferTensor(name=VALUE),), producer_id=scope
    )
    with grpc.insecure_channel(address) as channel:
        stub: Any = worker_pb2_grpc.WorkerServiceStub(channel)
        request = worker_pb2.TransferRequest(manifest=wire.to_proto(manifest))
        return decode_tensors(stub.Transfer(request, timeout=60).payload)[VALUE]
