"""A batch over a scripted client: what becomes of an item, and what a later run does."""

import asyncio
import errno
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastvideo.client.batch_file import BatchItem
from fastvideo.client.batches import BatchResult, run_batch
from fastvideo.errors import (
    Cancelled,
    FastVideoError,
    InvalidField,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from fastvideo.events.types import Event
from fastvideo.requests.types import ErrorDetail, RequestStatus

ITEMS = (BatchItem(id="a", prompt="a"), BatchItem(id="b", prompt="b"))
FULL = OSError(errno.ENOSPC, "no space left on device")
BROKEN = FastVideoError("another digest", reason="DIGEST_MISMATCH")


class Scripted:
    """Each prompt is a request; a step of item "a" may raise."""

    def __init__(self, *, fails: str = "", **errors: Exception) -> None:
        self.fails = fails
        self.errors = errors
        self.keys: list[str] = []
        self.calls: Counter[str] = Counter()

    def _step(self, name: str, whose: str) -> None:
        self.calls[f"{name} {whose}"] += 1
        if whose == "a" and name in self.errors:
            raise self.errors[name]

    async def submit(self, prompt: str, *, idempotency_key: str, **_: Any) -> Any:
        self._step("submit", prompt)
        self.keys.append(idempotency_key)
        return SimpleNamespace(spec=SimpleNamespace(request_id=f"req_{prompt}"))

    async def watch(self, request_id: str) -> AsyncGenerator[Event, None]:
        self._step("wait", request_id.removeprefix("req_"))
        nothing: tuple[Event, ...] = ()
        for event in nothing:
            yield event

    async def get(self, request_id: str) -> Any:
        whose = request_id.removeprefix("req_")
        record = SimpleNamespace(name="video.mp4", artifact_id=whose)
        if whose == self.fails:
            error = ErrorDetail(reason="NON_FINITE", message="NaN in the latents")
            return SimpleNamespace(
                status=RequestStatus.FAILED, latents_digest="", error=error, artifacts=()
            )
        return SimpleNamespace(
            status=RequestStatus.COMPLETED, latents_digest="d", error=None, artifacts=(record,)
        )

    async def save_artifact(self, artifact_id: str, path: Path) -> None:
        self._step("save", artifact_id)
        await asyncio.to_thread(path.write_text, artifact_id)


async def outcome(client: Any, folder: Path, **options: Any) -> tuple[BatchResult, ...]:
    return await run_batch(client, ITEMS, folder, **options)


@pytest.mark.parametrize(("error", "reason"), [(FULL, "OS_ERROR"), (BROKEN, "DIGEST_MISMATCH")])
async def test_a_video_that_was_not_fetched_is_fetched_later_and_not_made_again(
    tmp_path: Path, error: Exception, reason: str
) -> None:
    first, other = await outcome(Scripted(save=error), tmp_path)
    assert (first.status, first.request_id) == ("unfetched", "req_a")
    assert first.error["reason"] == reason
    assert other.completed
    later = Scripted()
    again, _ = await outcome(later, tmp_path, retry_failed=True)
    assert again.completed
    assert (again.request_id, again.error) == ("req_a", {})
    assert (tmp_path / "a.video.mp4").read_text() == "a"
    assert later.keys == []


async def test_what_was_accepted_keeps_its_id_when_its_end_is_not_known(tmp_path: Path) -> None:
    first, _ = await outcome(Scripted(wait=NotFound("lost")), tmp_path)
    assert (first.status, first.request_id) == ("accepted", "req_a")
    later = Scripted()
    assert (await outcome(later, tmp_path))[0].completed
    assert later.keys == []


@pytest.mark.row("API-25")
async def test_what_fails_while_it_runs_harms_no_other_and_may_be_asked_anew(
    tmp_path: Path,
) -> None:
    first, other = await outcome(Scripted(fails="a"), tmp_path)
    assert (first.status, first.request_id) == ("failed", "req_a")
    assert first.error["reason"] == "NON_FINITE"
    assert other.completed
    assert (first.files, other.files) == ({}, {"video.mp4": "b.video.mp4"})
    again = Scripted()
    assert not (await outcome(again, tmp_path))[0].completed
    assert again.keys == []
    assert (await outcome(again, tmp_path, retry_failed=True))[0].completed
    assert [key[-2:] for key in again.keys] == ["-1"]


@pytest.mark.parametrize("error", [FileNotFoundError("a.png"), NotFound("no such model")])
async def test_what_was_not_accepted_is_refused_and_harms_no_other(
    tmp_path: Path, error: Exception
) -> None:
    first, other = await outcome(Scripted(submit=error), tmp_path)
    assert (first.status, first.request_id) == ("refused", "")
    assert other.completed
    assert not (await outcome(Scripted(), tmp_path))[0].completed
    later = Scripted()
    assert (await outcome(later, tmp_path, retry_failed=True))[0].completed
    assert [key[-2:] for key in later.keys] == ["-1"]


@pytest.mark.parametrize("error", [Unavailable("gone"), Cancelled("closed")])
async def test_what_ends_the_run_is_raised_as_itself(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)):
        await outcome(Scripted(wait=error), tmp_path)


async def test_an_item_waits_while_its_quota_is_used_up(tmp_path: Path) -> None:
    class Spent(Scripted):
        """Has room at the third try."""

        async def submit(self, prompt: str, *, idempotency_key: str, **named: Any) -> Any:
            if prompt == "a" and self.calls["submit a"] == 2:
                self.errors.clear()
            return await super().submit(prompt, idempotency_key=idempotency_key, **named)

    spent = ResourceExhausted("spent", reason="QUOTA_REQUESTS", attributes={"retry_after_s": "0"})
    client = Spent(submit=spent)
    assert all(result.completed for result in await outcome(client, tmp_path))
    assert client.calls["submit a"] == 3


@pytest.mark.parametrize("ids", [("a", "a"), ("a", ""), ("../a", "b")])
async def test_ids_that_name_no_file_of_their_own_are_refused(
    tmp_path: Path, ids: tuple[str, str]
) -> None:
    client: Any = Scripted()
    with pytest.raises(InvalidField):
        await run_batch(client, [BatchItem(id=id_, prompt="a") for id_ in ids], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert client.keys == []
