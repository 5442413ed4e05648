"""Bytes that no record ever named: found by listing the store, and gone after a while."""

import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fastvideo.errors import FailedPrecondition
from fastvideo_artifacts.sweeping import Swept
from tests.integration.artifacts.sweeps import (
    DONE,
    FILM,
    SHEET,
    STRAYS_KEPT,
    Dying,
    Killed,
    Shop,
    Steps,
    chunks_of,
    digest_of,
)


async def _clears(shop: Shop) -> None:
    await shop.made("req_1", FILM)
    await shop.accept("req_2")

    async def late() -> AsyncIterator[bytes]:
        yield SHEET
        await shop.tell("request-req_2", DONE)

    with pytest.raises(FailedPrecondition, match="ended"):
        await shop.put_chunks("req_2", "o", late())
    await shop.blobs.put(chunks_of(b"its process died"))
    sweeper = await shop.sweeper()
    shop.clock.set(datetime.now(UTC))
    assert not await sweeper.clear()
    shop.clock.set(datetime.now(UTC) + STRAYS_KEPT + timedelta(hours=1))
    assert await sweeper.clear() == Swept(removed=2)
    assert await shop.stored() == {digest_of(FILM)}
    # The same bytes may come again, and go again.
    await shop.made("req_3", SHEET)
    assert not await sweeper.clear()
    await shop.require_no_dangling()
    await shop.delete("req_3")
    assert await sweeper.sweep() == Swept(given_up=1, removed=1)


async def test_bytes_that_no_record_ever_named_go_after_a_while(shop: Shop) -> None:
    await _clears(shop)


async def test_bytes_that_no_record_ever_named_go_from_a_bucket_too(shop_on_s3: Shop) -> None:
    await _clears(shop_on_s3)


async def test_a_stray_that_is_older_than_the_log_stays_and_its_removal_survives_death(
    shop: Shop, tmp_path: Path
) -> None:
    older = await shop.blobs.put(chunks_of(b"of another log"))
    os.utime(tmp_path / "blobs/sha256" / older.digest[:2] / older.digest[2:], times=(0, 0))
    await shop.made("req_1", SHEET)
    await shop.blobs.put(chunks_of(FILM))
    shop.clock.set(datetime.now(UTC) + timedelta(days=9))
    with pytest.raises(Killed):
        await (await shop.sweeper(blobs=Dying(shop.parts.blobs, "delete", Steps(1)))).clear()
    assert await shop.stored() == {digest_of(SHEET), older.digest}
    # Until it is told that they are gone, the same bytes are refused.
    assert await (await shop.sweeper()).sweep() == Swept(removed=1)
    assert await shop.made("req_2", FILM)
    assert not await (await shop.sweeper()).clear()
