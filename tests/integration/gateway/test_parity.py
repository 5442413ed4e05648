"""Results of parity checks are kept in their models' streams, once a key, or refused by field."""

from dataclasses import replace
from typing import Any

import grpc
import pytest

from fastvideo import wire
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.errors import AlreadyExists, InvalidField, NotFound
from fastvideo.events.catalog import event_of
from fastvideo.events.types import Event
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.scheduling.known_weights import model_stream
from fastvideo.scheduling.traces import ParityChecked
from tests.integration.gateway.worlds import MODEL, World

CHECK = ParityChecked(
    model_id=MODEL,
    card_digest="c" * 64,
    rung="C0",
    subject="transformer",
    reference="diffusers.WanPipeline",
    passed=True,
    fingerprint={"torch": "2.13.0"},
)


async def record(world: World, *checks: ParityChecked, key: str = "") -> None:
    request = gateway_pb2.RecordParityRequest(
        idempotency_key=key, checks=[wire.to_proto(check) for check in checks]
    )
    try:
        await world.stub.RecordParity(request)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


async def kept(world: World) -> list[Event]:
    return [event_of(e) for e in await world.log.read_stream(model_stream(MODEL))]


async def test_results_are_kept_in_their_order(world: World) -> None:
    failed = replace(CHECK, rung="C1", passed=False, max_abs_difference=float("inf"), first_step=3)
    await record(world, CHECK, failed)
    events = await kept(world)
    assert [event.payload for event in events] == [CHECK, failed]
    assert {event.name for event in events} == {"parity.checked"}
    assert {event.metadata.model_id for event in events} == {MODEL}
    assert all("fastvideo" in event.metadata.versions for event in events)


async def test_a_repeated_key_records_once(world: World) -> None:
    for _ in range(2):
        await record(world, CHECK, key="nightly-1")
    assert len(await kept(world)) == 1


async def test_a_key_of_other_results_is_refused(world: World) -> None:
    failed = replace(CHECK, rung="C1", passed=False, max_abs_difference=1.0)
    first = (CHECK, failed)
    await record(world, *first, key="nightly-2")
    for other in ((CHECK,), (failed, CHECK), (replace(CHECK, subject="vae"), failed)):
        with pytest.raises(AlreadyExists) as caught:
            await record(world, *other, key="nightly-2")
        assert caught.value.reason == "IDEMPOTENCY_KEY_REUSED"
    await record(world, *first, key="nightly-2")
    assert [event.payload for event in await kept(world)] == list(first)


async def test_nobody_speaks_for_a_worker(world: World) -> None:
    await record(world, replace(CHECK, worker_id="worker-1"))
    [event] = await kept(world)
    assert event.payload == CHECK


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"rung": "C9"}, "checks.0.rung"),
        ({"subject": ""}, "checks.0.subject"),
        ({"reference": "r" * 1000}, "checks.0.reference"),
        ({"max_abs_difference": float("nan")}, "checks.0.max_abs_difference"),
        ({"tolerance": -1.0}, "checks.0.tolerance"),
        ({"max_abs_difference": 1.0}, "checks.0.passed"),
    ],
)
async def test_a_result_that_cannot_be_is_refused(
    world: World, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidField) as caught:
        await record(world, replace(CHECK, **changes))
    assert caught.value.field == field
    assert await kept(world) == []


async def test_too_many_none_and_unknown_models_are_refused(world: World) -> None:
    for checks in ((), (CHECK,) * 257):
        with pytest.raises(InvalidField, match="1 to 256"):
            await record(world, *checks)
    with pytest.raises(NotFound):
        await record(world, replace(CHECK, model_id="nobody"))
