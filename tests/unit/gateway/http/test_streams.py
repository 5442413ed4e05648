"""Streams of events: bounded, closed from either side, and never silent."""

import asyncio
from collections.abc import AsyncGenerator, Iterator

import pytest

from fastvideo.errors import NotFound, ResourceExhausted
from fastvideo.rpc.identity import ANYBODY, Caller, Role, calling
from fastvideo_gateway.http import streams
from fastvideo_gateway.http.openai.errors import openai_failed
from fastvideo_gateway.http.streams import Streams, message


async def two() -> AsyncGenerator[bytes, None]:
    yield message("first", {"n": 1}, "1")
    yield message("second", {"n": 2})


@pytest.fixture(autouse=True)
def caller() -> Iterator[None]:
    with calling(ANYBODY):
        yield


async def collected(messages: AsyncGenerator[bytes, None], closing: asyncio.Event) -> bytes:
    answer = Streams(closing).answer(messages)
    return b"".join([bytes(part) async for part in answer.body_iterator])  # type: ignore[arg-type]


async def test_messages_are_framed_and_the_stream_ends_with_them() -> None:
    told = await collected(two(), asyncio.Event())
    assert told == (
        b': open\n\nid: 1\nevent: first\ndata: {"n":1}\n\nevent: second\ndata: {"n":2}\n\n'
    )


async def test_a_typed_error_is_told_and_ends_the_stream() -> None:
    async def failing() -> AsyncGenerator[bytes, None]:
        yield message("first", {})
        raise NotFound("request r does not exist", subject="request_id")

    told = await collected(failing(), asyncio.Event())
    assert b"event: error" in told
    assert b'"reason":"NOT_FOUND"' in told
    answer = Streams(asyncio.Event()).answer(failing(), openai_failed)
    told = b"".join([bytes(part) async for part in answer.body_iterator])  # type: ignore[arg-type]
    error = b'"type":"not_found_error","param":"video_id","code":"not_found"'
    assert told.endswith(error + b"}}\n\n")


async def test_a_stream_without_an_end_ends_with_the_gateway() -> None:
    closing, closed = asyncio.Event(), asyncio.Event()

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            yield message("first", {})
            closing.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with asyncio.timeout(30):
        assert b"event: first" in await collected(endless(), closing)
    assert closed.is_set()


async def test_silence_is_broken_by_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.01)
    release = asyncio.Event()

    async def slow() -> AsyncGenerator[bytes, None]:
        await release.wait()
        yield message("late", {})

    seen = b""
    async with asyncio.timeout(30):
        async for part in Streams(asyncio.Event()).answer(slow()).body_iterator:
            seen += bytes(part)  # type: ignore[arg-type]
            if b"still here" in seen:
                release.set()
    assert seen.endswith(b"event: late\ndata: {}\n\n")


async def test_a_tenant_has_its_share_of_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAMS_MAX", 4)
    open_ones = Streams(asyncio.Event(), share=0.5)
    first = [aiter(open_ones.answer(two()).body_iterator) for _ in range(2)]
    for one in first:
        await anext(one)
    with pytest.raises(ResourceExhausted, match="tenant default has 2 streams") as caught:
        open_ones.answer(two())
    assert (caught.value.reason, caught.value.subject) == ("TENANT_PLACES", "streams")
    with calling(Caller(tenant_id="other", role=Role.USER)):
        open_ones.answer(two())
    assert [part async for part in first[0]]
    open_ones.answer(two())


async def test_too_many_streams_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAMS_MAX", 1)
    open_ones = Streams(asyncio.Event())
    first = open_ones.answer(two()).body_iterator
    assert await anext(aiter(first)) == b": open\n\n"
    with pytest.raises(ResourceExhausted, match="streams"):
        open_ones.answer(two())
    assert [part async for part in first]
    open_ones.answer(two())
