"""The client over real gRPC, against a server that cuts and refuses on cue."""

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import fastvideo
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord, Producer
from fastvideo.client import AsyncClient, CallPolicy, calls
from fastvideo.errors import (
    CorruptLog,
    DeadlineExceeded,
    FastVideoError,
    InvalidField,
    NotFound,
    Unavailable,
)
from fastvideo.requests.types import RequestStatus, SamplingOverrides
from tests.integration.client.scripted_gateway import AT, SPEC, Script, history, serve

PATIENT = CallPolicy(timeout_s=60.0, silence_s_max=60.0, retry_first_s=0.01, retry_s_max=0.05)
# For servers that never come back.
QUICK = replace(PATIENT, timeout_s=0.5, silence_s_max=0.4)
BYTES = bytes(range(256)) * 3


@asynccontextmanager
async def client_of(script: Script, policy: CallPolicy = PATIENT) -> AsyncIterator[AsyncClient]:
    async with serve(script) as server, AsyncClient(server.address, policy=policy) as client:
        yield client


def record_of(data: bytes) -> ArtifactRecord:
    return ArtifactRecord(
        artifact_id="art_1",
        kind=ArtifactKind.VIDEO,
        digest=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        producer=Producer(),
        created_at=AT,
        completed_at=AT,
    )


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.row("REQ-07")
async def test_a_watch_goes_on_after_cuts_without_gap_or_repeat() -> None:
    script = Script(cuts=[3, 1, 2, 0])
    async with client_of(script) as client:
        events = [event async for event in client.watch("req_1")]
    assert [event.stream_version for event in events] == list(range(1, 11))
    assert [event.payload for event in events] == list(history(8))
    assert script.watched_after == [0, 3, 4, 6]


async def test_a_watch_can_begin_anywhere() -> None:
    async with client_of(Script()) as client:
        events = [event async for event in client.watch("req_1", after_sequence=7)]
        nothing = [event async for event in client.watch("req_1", after_sequence=10)]
    assert [event.stream_version for event in events] == [8, 9, 10]
    assert nothing == []


async def test_a_watch_refuses_a_missing_sequence_number() -> None:
    async with client_of(Script(skip_sequence=4)) as client:
        with pytest.raises(CorruptLog, match="event 5 of req_1 came where 4 is next"):
            async for _ in client.watch("req_1"):
                pass


async def test_a_watch_gives_up_when_the_server_stays_away() -> None:
    async with serve(Script(cuts=[2])) as server:
        address = server.address
        async with AsyncClient(address, policy=QUICK) as client:
            events = client.watch("req_1")
            await anext(events)
            await server.stop(0)
            with pytest.raises(Unavailable):
                async for _ in events:
                    pass


@pytest.fixture
def slow_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock is longer after the one before than any patience."""
    looks = itertools.count(0.0, 2 * PATIENT.silence_s_max)
    monkeypatch.setattr(calls, "time", SimpleNamespace(monotonic=lambda: next(looks)))


async def test_what_was_quiet_or_busy_for_long_goes_on_after_a_cut(slow_time: None) -> None:
    script = Script(cuts=[3, 1, 0], artifact=BYTES, record=record_of(BYTES), byte_cuts=[100, 20, 0])
    async with client_of(script) as client:
        events = [event async for event in client.watch("req_1")]
        assert await client.read_artifact("art_1") == BYTES
    assert [event.stream_version for event in events] == list(range(1, 11))
    assert script.read_from == [0, 100, 120]


async def test_a_watch_that_is_left_early_ends_on_the_server_too() -> None:
    async with client_of(Script(payloads=history(500))) as client:
        events = client.watch("req_1")
        await anext(events)
        await events.aclose()
        assert (await client.get("req_1")).status is RequestStatus.COMPLETED


async def test_a_submit_is_tried_again_with_one_key() -> None:
    script = Script(unavailable=3)
    async with client_of(script) as client:
        state = await client.submit("a red three")
    assert state.spec == SPEC
    assert len(script.idempotency_keys) == 4
    assert len(set(script.idempotency_keys)) == 1
    assert script.idempotency_keys[0]


async def test_a_call_gives_up_at_its_deadline() -> None:
    async with client_of(Script(unavailable=10_000)) as client:
        for seconds in (0.5, 5.0, 30.0):
            try:
                with pytest.raises(Unavailable):
                    await client.get("req_1", timeout_s=seconds)
            except DeadlineExceeded:
                # On a busy machine nobody may have answered once by then.
                continue
            return
    raise AssertionError("nobody answered in time")


async def test_refusals_arrive_typed_and_are_not_repeated() -> None:
    script = Script()
    async with client_of(script) as client:
        with pytest.raises(InvalidField) as refused:
            await client.submit("a red three", sampling=SamplingOverrides(steps=0))
        with pytest.raises(NotFound) as missing:
            await client.get("req_2")
    assert (refused.value.field, refused.value.allowed) == ("sampling.steps", "1 to 1000")
    assert missing.value.subject == "req_2"
    assert len(script.idempotency_keys) == 1


async def test_a_refused_text_is_named_as_it_was_given() -> None:
    async with client_of(Script(refused="inputs[1].text.text")) as client:
        with pytest.raises(InvalidField, match="negative_prompt is 'x'; allowed: less") as refused:
            await client.submit("a red three", negative_prompt="x")
    assert refused.value.field == "negative_prompt"


async def test_wait_ends_with_the_request() -> None:
    seen: list[str] = []
    async with client_of(Script()) as client:
        state = await client.wait("req_1", on_event=lambda event: seen.append(event.type))
    assert state.status is RequestStatus.COMPLETED
    assert seen[0] == "RequestAccepted"
    assert seen[-1] == "RequestCompleted"


async def test_a_download_goes_on_after_cuts_and_is_verified(tmp_path: Path) -> None:
    script = Script(artifact=BYTES, record=record_of(BYTES), byte_cuts=[20, 100, 0])
    target = tmp_path / "new" / "video.mp4"
    async with client_of(script) as client:
        record = await client.save_artifact("art_1", target)
    assert target.read_bytes() == BYTES
    assert record == record_of(BYTES)
    assert script.read_from == [0, 20, 120]
    assert names_in(target.parent) == ["video.mp4"]


async def test_other_bytes_than_the_record_says_are_refused_and_leave_no_file(
    tmp_path: Path,
) -> None:
    wrong = b"x" * len(BYTES)
    async with client_of(Script(artifact=wrong, record=record_of(BYTES))) as client:
        with pytest.raises(FastVideoError) as caught:
            await client.save_artifact("art_1", tmp_path / "video.mp4")
        assert caught.value.reason == "DIGEST_MISMATCH"
        with pytest.raises(FastVideoError):
            await client.read_artifact("art_1")
    assert names_in(tmp_path) == []


async def test_an_artifact_is_named_by_its_record_or_its_id() -> None:
    record = record_of(BYTES)
    async with client_of(Script(artifact=BYTES, record=record)) as client:
        assert await client.read_artifact(record) == BYTES
        # A generation without a video has None for one.
        for nothing in ("", None):
            with pytest.raises(InvalidField) as caught:
                await client.read_artifact(nothing)  # type: ignore[arg-type]
            assert caught.value.field == "artifact"


async def test_the_sync_client_says_the_same() -> None:
    script = Script(cuts=[4, 0], artifact=BYTES, record=record_of(BYTES))
    async with serve(script) as server:

        def use() -> None:
            with fastvideo.Client(server.address, policy=PATIENT) as client:
                assert client.generate("a red three").status is RequestStatus.COMPLETED
                versions = [event.stream_version for event in client.watch("req_1")]
                assert versions == list(range(1, 11))
                for event in client.watch("req_1"):
                    assert event.stream_version == 1
                    break
                assert client.read_artifact("art_1") == BYTES
                with pytest.raises(NotFound):
                    client.get("req_2")
            client.close()

        await asyncio.to_thread(use)
