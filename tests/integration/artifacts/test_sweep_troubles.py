"""What cannot be read or removed keeps nothing else from going, and is come back to."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from fastvideo.artifacts.events import BlobRemoved
from fastvideo.artifacts.state import stream_of
from fastvideo.blobs import Blob, KeptByStore
from fastvideo.errors import CorruptLog, NotFound, Unavailable
from fastvideo.events.catalog import event_of
from fastvideo.service.run import end_task
from fastvideo_artifacts import app, sweeping
from fastvideo_artifacts.book import DueArtifact
from fastvideo_artifacts.strays import Strays
from fastvideo_artifacts.sweeping import Swept
from tests.integration.artifacts.sweeps import (
    FILM,
    SHEET,
    STRAYS_KEPT,
    TENANT,
    TTL_S,
    Shop,
    digest_of,
    is_unreadable,
    live_artifacts,
)


async def test_what_cannot_be_done_keeps_nothing_behind_it_from_going(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "AT_ONCE_MAX", 2)
    films = [f"film {n}".encode() for n in range(6)]
    damaged, *refused = sorted(map(digest_of, films))[:4]
    bad = {f"request-req_{n}" for n in range(3)}
    for number, film in enumerate(films):
        await shop.made(f"req_{number}", film, ttl_s=TTL_S)
    shop.clock.set(shop.clock.now() + timedelta(seconds=TTL_S))

    class Log:
        def __getattr__(self, name: str) -> Any:
            return getattr(shop.parts.store, name)

        async def read_stream(self, stream_id: str, *args: Any) -> Any:
            if stream_id in bad:
                raise CorruptLog("a gap", subject=stream_id)
            return await shop.parts.store.read_stream(stream_id, *args)

    class Refusing:
        async def delete(self, digest: str) -> None:
            if digest in refused:
                raise Unavailable("not allowed")
            await shop.blobs.delete(digest)

    class Away:
        async def list(self) -> AsyncIterator[Blob]:
            raise Unavailable("away")
            yield

    class Uses:
        async def read(self, digest: str) -> Any:
            if digest == damaged:
                raise CorruptLog("a gap", subject=digest)
            return await shop.parts.uses.read(digest)

    sweeper = await shop.sweeper(store=Log(), blobs=Refusing(), uses=Uses())
    assert await sweeper.sweep() == Swept(expired=3, given_up=6, removed=2, failed=7)
    assert await shop.stored() == {damaged, *refused}
    parts = shop.parts
    away: Any = Away()
    strays = Strays(parts.store, away, parts.book, shop.clock, STRAYS_KEPT)
    assert await (await shop.sweeper(strays=strays)).clear() == Swept(failed=1)
    # It comes back to all of them.
    assert await (await shop.sweeper()).sweep() == Swept(expired=3, removed=4)


async def test_bytes_that_the_store_keeps_may_be_put_again_and_go_once_it_lets_them(
    shop: Shop,
) -> None:
    kept = {digest_of(FILM), digest_of(SHEET)}
    asked: list[str] = []

    class Keeping:
        async def delete(self, digest: str) -> None:
            asked.append(digest)
            if digest in kept:
                raise KeptByStore("not allowed")
            await shop.blobs.delete(digest)

    (film,) = await shop.made("req_1", FILM)
    await shop.made("req_2", SHEET)
    await shop.delete("req_1")
    await shop.delete("req_2")
    sweeper = await shop.sweeper(blobs=Keeping())
    assert await sweeper.sweep() == Swept(given_up=2, failed=2)
    # Whose they were has them no more; the log and the metric tell that they are there yet.
    with pytest.raises(NotFound):
        await shop.catalog.find_whole(film, TENANT)
    told = await shop.store.read_stream(f"blob-{digest_of(FILM)}")
    assert event_of(told[-1]).payload == BlobRemoved(digest=digest_of(FILM), refused=True)
    assert await sweeper.sweep() == Swept()
    assert (len(asked), shop.parts.book.overdue) == (2, 2)
    # Somebody else has the same bytes meanwhile; the others are asked for again.
    (other,) = await shop.made("req_3", FILM)
    await shop.parts.projector.reached(await shop.store.heads())
    await sweeper.clear()
    assert asked[2:] == [digest_of(SHEET)]
    kept.clear()
    await shop.parts.projector.reached(await shop.store.heads())
    assert await sweeper.clear() == Swept(removed=1)
    assert await shop.stored() == {digest_of(FILM)}
    assert other in await live_artifacts(shop.store)
    await shop.delete("req_3")
    assert await sweeper.sweep() == Swept(given_up=1, removed=1)
    await shop.parts.projector.reached(await shop.store.heads())
    await sweeper.sweep()
    assert (await shop.stored(), shop.parts.book.overdue) == (set(), 0)


async def _stays_by_the_log_alone(shop: Shop) -> None:
    await shop.made("req_8", b"shared")
    (second,) = await shop.made("req_9", b"shared")
    await shop.delete("req_8")
    await shop.parts.projector.reached(await shop.store.heads())
    async with shop.parts.book._pool.connection() as connection:
        # As if its completion had been passed over.
        await connection.execute("DELETE FROM artifacts WHERE artifact_id = $1", second)
    await (await shop.sweeper()).sweep()
    assert digest_of(b"shared") in await shop.stored()


async def test_a_stream_that_cannot_be_read_is_held_until_it_can(shop: Shop) -> None:
    (film,) = await shop.made("req_1", FILM, ttl_s=TTL_S)
    (sheet,) = await shop.made("req_2", SHEET, ttl_s=TTL_S)
    await shop.made("req_3", b"other", ttl_s=TTL_S)
    await shop.tell_unreadable(stream_of(film), "ArtifactPinned")
    await shop.tell_unreadable("request-req_2", "RequestPinned")
    shop.clock.set(shop.clock.now() + timedelta(seconds=TTL_S))
    first = await (await shop.sweeper()).sweep()
    # Of req_1 the request goes on; its artifact, of which more is said than is known, stays.
    assert first == Swept(expired=2, given_up=1, removed=1, failed=2)
    assert await shop.stored() == {digest_of(FILM), digest_of(SHEET)}

    class Newer:
        """The log, to a program that can read all of it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(shop.parts.store, name)

        async def read_stream(self, stream_id: str, *args: Any) -> Any:
            page = await shop.parts.store.read_stream(stream_id, *args)
            return tuple(stored for stored in page if not is_unreadable(stored))

    for artifact_id in (film, sheet):
        await shop.parts.book.take_again(stream_of(artifact_id), Newer())
    await shop.parts.book.take_again("request-req_2", Newer())
    assert await shop.parts.book.held("", 9) == ()
    await _stays_by_the_log_alone(shop)
    now = shop.clock.now()
    assert await shop.parts.book.due(now, "", 9) == tuple(
        DueArtifact(one, "expired") for one in sorted((film, sheet))
    )


async def test_sweeping_that_was_interrupted_is_taken_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = asyncio.Queue[None]()

    async def keep_swept(*_: object) -> None:
        begun.put_nowait(None)
        raise CorruptLog("a gap")

    monkeypatch.setattr(app, "keep_swept", keep_swept)
    task = asyncio.create_task(app._sweep(None, "one", 0.001))  # type: ignore[arg-type]
    async with asyncio.timeout(20):
        for _ in range(3):
            await begun.get()
    await end_task(task)
