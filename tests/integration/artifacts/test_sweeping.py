"""Sweeps: what expired or was deleted goes, bytes that anybody has stay, death loses nothing."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from fastvideo.artifacts.state import stream_of
from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.errors import (
    Conflict,
    Fenced,
    Gone,
    NotFound,
    Unavailable,
)
from fastvideo.requests.sealing import TenantErased
from fastvideo.requests.state import stream_of as stream_of_request
from fastvideo_artifacts.book import INPUTS_KEPT
from fastvideo_artifacts.sweeping import Swept
from tests.integration.artifacts.sweeps import (
    DONE,
    FILM,
    SHEET,
    TENANT,
    TTL_S,
    Dying,
    Killed,
    Shop,
    Steps,
    digest_of,
)
from tests.plugins.waiting import eventually

SEED = 20_260_101


async def _expires(shop: Shop) -> None:
    film, sheet = await shop.made("req_1", FILM, SHEET, ttl_s=TTL_S)
    (kept,) = await shop.made("req_2", b"for ever")
    sweeper = await shop.sweeper()
    assert not await sweeper.sweep()
    assert (await shop.catalog.find_whole(film)).digest == digest_of(FILM)

    shop.clock.set(shop.clock.now() + timedelta(seconds=TTL_S))
    with pytest.raises(Gone, match="expired") as caught:
        await shop.catalog.find_whole(film)
    assert caught.value.reason == "MEDIA_EXPIRED"
    assert (await shop.catalog.find(film, TENANT)).deleted_at is None

    assert await sweeper.sweep() == Swept(expired=1, given_up=2, removed=2)
    assert await shop.stored() == {digest_of(b"for ever")}
    state = await shop.state("req_1")
    assert state.expired_at == state.expires_at == shop.clock.now()
    assert [record.deleted_at for record in state.artifacts] == [shop.clock.now()] * 2
    assert (await shop.names(stream_of(film)))[-1] == "artifact.deleted"
    assert (await shop.catalog.find(sheet, TENANT)).deleted_at == shop.clock.now()
    with pytest.raises(Gone):
        await shop.catalog.find_whole(sheet)
    assert (await shop.catalog.find_whole(kept)).deleted_at is None
    assert not await sweeper.sweep()


async def test_what_has_expired_is_refused_at_once_then_told_then_removed(shop: Shop) -> None:
    await _expires(shop)


async def test_bytes_go_from_a_bucket_as_from_a_folder(shop_on_s3: Shop) -> None:
    await _expires(shop_on_s3)


async def test_what_a_deleted_request_made_is_there_for_nobody(shop: Shop) -> None:
    (film,) = await shop.made("req_1", FILM)
    await shop.delete("req_1")
    with pytest.raises(NotFound):
        await shop.catalog.find(film, TENANT)
    with pytest.raises(NotFound):
        await shop.catalog.list("req_1", 10, "", TENANT)
    with pytest.raises(Gone) as caught:
        await shop.catalog.find_whole(film)
    assert caught.value.reason == "MEDIA_DELETED"
    assert await (await shop.sweeper()).sweep() == Swept(given_up=1, removed=1)
    # Who compares the log with what is served still finds it.
    assert (await shop.catalog.find(film)).deleted_at is not None


async def test_bytes_that_two_requests_have_stay_until_both_are_gone(shop: Shop) -> None:
    await shop.made("req_1", FILM)
    (second,) = await shop.made("req_2", FILM)
    sweeper = await shop.sweeper()
    await shop.delete("req_1")
    assert await sweeper.sweep() == Swept(given_up=1)
    assert (await shop.catalog.find_whole(second)).digest == digest_of(FILM)
    await shop.delete("req_2")
    assert await sweeper.sweep() == Swept(given_up=1, removed=1)
    assert await shop.stored() == set()
    assert await shop.names(f"blob-{digest_of(FILM)}") == [
        "artifact.completed",
        "artifact.completed",
        "blob.removal_decided",
        "blob.removed",
    ]
    # The same bytes may come again, and go again.
    (third,) = await shop.made("req_3", FILM)
    assert (await shop.catalog.find_whole(third)).digest == digest_of(FILM)
    assert not await sweeper.sweep()
    await shop.delete("req_3")
    assert await sweeper.sweep() == Swept(given_up=1, removed=1)


async def test_a_put_during_a_removal_is_told_to_come_again(shop: Shop) -> None:
    await shop.made("req_1", FILM)
    await shop.delete("req_1")
    await shop.accept("req_2")

    class Slow:
        """Removes bytes while others put them."""

        refused = 0

        async def delete(self, digest: str) -> None:
            with pytest.raises(Unavailable) as caught:
                await shop.put("req_2", "o", FILM)
            assert caught.value.reason == "BLOB_BEING_REMOVED"
            Slow.refused += 1
            await shop.blobs.delete(digest)

    assert (await (await shop.sweeper(blobs=Slow())).sweep()).removed == 1
    assert Slow.refused == 1
    record = await shop.put("req_2", "o", FILM)
    assert (await shop.catalog.find_whole(record.artifact_id)).digest == digest_of(FILM)


async def test_a_record_that_comes_before_the_decision_keeps_its_bytes(shop: Shop) -> None:
    await shop.made("req_1", FILM)
    await shop.delete("req_1")
    await shop.accept("req_2")
    put: list[ArtifactRecord] = []

    class Looking:
        """The book, whose last look is a moment before a put."""

        def __getattr__(self, name: str) -> Any:
            return getattr(shop.parts.book, name)

        async def is_used(self, digest: str) -> bool:
            used = await shop.parts.book.is_used(digest)
            if not put:
                put.append(await shop.put("req_2", "o", FILM))
            return used

    assert (await (await shop.sweeper(book=Looking())).sweep()).removed == 0
    assert (await shop.catalog.find_whole(put[0].artifact_id)).digest == digest_of(FILM)
    await shop.require_no_dangling()


async def test_whoever_lost_the_lease_removes_nothing(shop: Shop) -> None:
    await shop.made("req_1", FILM)
    await shop.delete("req_1")
    old = await shop.sweeper()
    await shop.store.release_lease(await shop.lease())
    successor = await shop.lease("two")
    with pytest.raises(Fenced):
        await old.sweep()
    assert await shop.stored() == {digest_of(FILM)}
    assert await shop.names("request-req_1") == [
        "request.accepted",
        "artifact.created",
        "artifact.completed",
        "request.completed",
        "request.deleted",
    ]
    await shop.store.release_lease(successor)
    assert (await (await shop.sweeper()).sweep()).removed == 1


async def test_a_clock_that_is_ahead_removes_nothing_before_its_time(shop: Shop) -> None:
    shop.clock.set(datetime.now(UTC))
    await shop.made("req_1", FILM, ttl_s=3600)
    shop.clock.set(shop.clock.now() + timedelta(hours=2))
    assert not await (await shop.sweeper()).sweep()
    assert await shop.stored() == {digest_of(FILM)}


async def test_a_sweep_that_is_killed_anywhere_is_gone_on_with(shop: Shop) -> None:
    deaths = 0
    while True:
        # One that shares, one that expires, one that is deleted: every kind of step.
        name = f"req_{deaths}"
        shared = f"shared {deaths}".encode()
        (kept,) = await shop.made(f"{name}_kept", shared)
        await shop.made(f"{name}_old", shared, f"old {deaths}".encode(), ttl_s=TTL_S)
        await shop.made(f"{name}_gone", f"gone {deaths}".encode())
        await shop.delete(f"{name}_gone")
        shop.clock.set(shop.clock.now() + timedelta(seconds=TTL_S))

        steps = Steps(deaths)
        sweeper = await shop.sweeper(
            store=Dying(shop.parts.store, "append", steps),
            history=Dying(shop.parts.history, "delete", steps),
            blobs=Dying(shop.parts.blobs, "delete", steps),
        )
        try:
            await sweeper.sweep()
            died = False
        except Killed:
            died = True
        await shop.require_no_dangling()
        await (await shop.sweeper()).sweep()
        await shop.require_no_dangling()
        assert (await shop.catalog.find_whole(kept)).digest == digest_of(shared)
        names = await shop.names(f"request-{name}_old")
        assert (names.count("request.expired"), names.count("artifact.deleted")) == (1, 2)
        kept_bytes = {digest_of(f"shared {n}".encode()) for n in range(deaths + 1)}
        assert await shop.stored() == kept_bytes
        if not died:
            # Each of five tellings, three givings up and two removals, before and after.
            assert deaths == 2 * (1 + 3 + 2 * 3)
            return
        deaths += 1


async def test_puts_deletions_and_sweeps_at_once_leave_no_record_without_bytes(
    shop: Shop,
) -> None:
    chance = random.Random(SEED)
    films = [f"film {n}".encode() for n in range(2)]
    done = asyncio.Event()

    removed: list[str] = []

    class Slow:
        """Gives others time between the decision and the removal."""

        async def delete(self, digest: str) -> None:
            removed.append(digest)
            await asyncio.sleep(0.02)
            await shop.blobs.delete(digest)

    async def sweep() -> None:
        sweeper = await shop.sweeper(blobs=Slow())
        while not done.is_set():
            await sweeper.sweep()

    async def given_up(request_id: str) -> bool:
        (record,) = (await shop.state(request_id)).artifacts
        return record.deleted_at is not None

    async def put(request_id: str) -> bool:
        try:
            await shop.put(request_id, "o", chance.choice(films))
        except (Unavailable, Conflict):
            return False
        return True

    async def live(name: str) -> None:
        for n in range(8):
            request_id = f"{name}_{n}"
            await shop.accept(request_id)
            await eventually(partial(put, request_id))
            await shop.tell(f"request-{request_id}", DONE)
            if n < 7:
                await shop.delete(request_id)
                await eventually(partial(given_up, request_id), timeout_s=60.0)

    sweeping = asyncio.create_task(sweep())
    await asyncio.gather(*(live(name) for name in ("a", "b", "c")))
    done.set()
    await sweeping
    assert removed
    await shop.require_no_dangling()
    await (await shop.sweeper()).sweep()
    await shop.require_no_dangling()


async def test_an_input_goes_when_its_time_and_that_of_those_that_use_it_is_over(
    shop: Shop,
) -> None:
    begun = shop.clock.now()

    def after(seconds: float) -> None:
        shop.clock.set(begun + INPUTS_KEPT + timedelta(seconds=TTL_S + seconds))

    names = ("unused", "again", "short", "running", "for-ever", "deleted")
    ids = {name: await shop.put_input(name, name.encode(), TTL_S) for name in names}
    await shop.accept("req_short", 2 * TTL_S, [ids["short"]])
    await shop.accept("req_for_ever", None, [ids["for-ever"], ids["short"]])
    await shop.accept("req_running", TTL_S, [ids["running"]])
    await shop.accept("req_deleted", None, [ids["deleted"]])
    for name in ("req_short", "req_for_ever", "req_deleted"):
        await shop.tell(stream_of_request(name), DONE)
    await shop.delete("req_deleted")

    async def left() -> set[str]:
        await (await shop.sweeper()).sweep()
        stored = await shop.stored()
        return {name for name in names if digest_of(name.encode()) in stored}

    after(-1)
    assert await left() == set(names)
    assert await shop.put_input("again", b"again", TTL_S) == ids["again"]
    after(0)
    assert await left() == {"again", "short", "running", "for-ever"}
    after(2 * TTL_S)
    assert await left() == {"again", "short", "running", "for-ever"}
    await shop.delete("req_for_ever")
    await shop.tell(stream_of_request("req_running"), DONE)
    assert await left() == {"again", "running"}
    after(10 * 24 * 3600)
    assert await left() == set()
    assert (await shop.catalog.find(ids["again"])).deleted_at is not None
    # Put again it begins another life.
    await shop.put_input("unused", b"unused", TTL_S)
    assert (await shop.catalog.find_whole(ids["unused"])).deleted_at is None


async def test_an_erased_tenants_artifacts_go_and_its_inputs_may_come_again(shop: Shop) -> None:
    await shop.made("req_1", FILM)
    before = await shop.put("", "image", SHEET)
    await shop.tell(f"tenant-{TENANT}", TenantErased(tenant_id=TENANT))
    sweeper = await shop.sweeper()
    assert not await sweeper.sweep()
    await shop.tell(f"tenant-{TENANT}", TenantErased(tenant_id=TENANT, artifacts=True))
    assert await sweeper.sweep() == Swept(given_up=2, removed=2)
    with pytest.raises(Gone):
        await shop.catalog.find_whole(before.artifact_id, TENANT)
    again = await shop.put("", "image", SHEET)
    assert again.artifact_id == before.artifact_id
    assert (await shop.catalog.find_whole(again.artifact_id, TENANT)).deleted_at is None
    assert not await sweeper.sweep()
