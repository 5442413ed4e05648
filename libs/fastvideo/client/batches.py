"""Many generations from a file into a folder, over failures, restarts and lost connections.

The folder has `manifest.jsonl`, a line more after every item, and the items' files. A run that is
repeated with the same folder goes on: what is complete is not asked again, and what was asked is
found again by its idempotency key, also when this process died before it could note it.
"""

import asyncio
import json
import os
import random
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from fastvideo.client.batch_file import ID, BatchItem
from fastvideo.client.ending import waited
from fastvideo.errors import (
    Cancelled,
    FailedPrecondition,
    FastVideoError,
    InvalidField,
    ResourceExhausted,
    Unavailable,
)
from fastvideo.requests.types import RequestState, RequestStatus

if TYPE_CHECKING:
    from fastvideo.client.async_client import AsyncClient

MANIFEST: Final = "manifest.jsonl"
AT_ONCE: Final = 16
WAIT_S_MAX: Final = 24 * 3600.0
"""How long an item waits for its tenant's quota, seconds."""

_ACCEPTED: Final = "accepted"
_UNFETCHED: Final = "unfetched"
_TAKEN_UP: Final = (_ACCEPTED, _UNFETCHED)

OnItem = Callable[["BatchResult"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What became of one item."""

    id: str
    # Of what was asked: `BatchItem.digest`.
    digest: str
    # "completed", "failed" or "cancelled"; "refused" when it was not accepted; "accepted" when
    # its end is not known, and "unfetched" when it completed and its files are not here. A later
    # run takes up the last two where they are, and generates nothing anew for them.
    status: str = ""
    request_id: str = ""
    # Name of the artifact to its file in the folder.
    files: dict[str, str] = field(default_factory=dict)
    latents_digest: str = ""
    # Reason, message and subject of what went wrong.
    error: dict[str, str] = field(default_factory=dict)
    # How often it was asked anew after a failure.
    retries: int = 0

    @property
    def completed(self) -> bool:
        """Whether its files are there."""
        return self.status == "completed"


@dataclass(slots=True)
class _Manifest:
    """Lines of a file, the last of an item is the one that counts."""

    path: Path
    batch_id: str
    results: dict[str, BatchResult] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> "_Manifest":
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            manifest = cls(path, uuid.uuid4().hex)
            manifest._append({"batch_id": manifest.batch_id})
            return manifest
        try:
            return cls._read(path)
        except (ValueError, TypeError, KeyError) as error:
            raise FailedPrecondition(
                f"{path} is not the manifest of a batch; take another folder",
                reason="NO_MANIFEST",
                subject=str(path),
            ) from error

    @classmethod
    def _read(cls, path: Path) -> "_Manifest":
        whole, _, torn = path.read_text(encoding="utf-8").rpartition("\n")
        first, *rest = whole.split("\n")
        manifest = cls(path, json.loads(first)["batch_id"])
        for line in rest:
            result = BatchResult(**json.loads(line))
            manifest.results[result.id] = result
        if torn:
            # Its writer died in the middle of a line.
            path.write_text(f"{whole}\n", encoding="utf-8")
        return manifest

    def keep(self, result: BatchResult) -> None:
        """Note what became of an item; it is on the disk when this returns."""
        self.results[result.id] = result
        self._append(asdict(result))

    def _append(self, record: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())


async def run_batch(
    client: "AsyncClient",
    items: Sequence[BatchItem],
    folder: Path,
    *,
    base: Path | None = None,
    at_once: int = AT_ONCE,
    retry_failed: bool = False,
    on_item: OnItem | None = None,
) -> tuple[BatchResult, ...]:
    """Generate every item; gives what became of each, in their order.

    At most `at_once` are asked for at a time. An item that fails harms no other; `retry_failed`
    asks anew for those that an earlier run has noted as failed. `base` is where images are
    relative to. Raises InvalidField for ids that are empty or there twice, Unavailable when nobody
    answers any more, after which the same call goes on, Cancelled when the client is closed
    meanwhile, OSError when the manifest cannot be written, and FailedPrecondition when the folder
    holds another thing's manifest.
    """
    _check_ids(items)
    if not (isinstance(at_once, int) and at_once >= 1):
        raise InvalidField("at_once", at_once, "a whole number, 1 or more")
    manifest = await asyncio.to_thread(_Manifest.open, folder / MANIFEST)
    places, noting = asyncio.Semaphore(at_once), asyncio.Lock()

    async def one(item: BatchItem) -> None:
        known = manifest.results.get(item.id)
        if known is not None and known.digest != item.digest:
            known = None
        if known is not None and _is_done(known, folder, retry_failed=retry_failed):
            _tell(on_item, known)
            return
        async with places:
            result = await _generate(client, item, folder, base or Path(), manifest, known)
            async with noting:
                await asyncio.to_thread(manifest.keep, result)
            _tell(on_item, result)

    try:
        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(one(item), name=item.id)
    except BaseExceptionGroup as errors:
        _raise_first(errors)
    return tuple(manifest.results[item.id] for item in items)


def _check_ids(items: Sequence[BatchItem]) -> None:
    """Ids name files, and lines of the manifest."""
    seen: set[str] = set()
    for index, item in enumerate(items):
        if not isinstance(item, BatchItem):
            raise InvalidField(f"items[{index}]", item, "a BatchItem")
        if ID.fullmatch(item.id) is None or item.id in seen:
            raise InvalidField(f"items[{index}].id", item.id, "a file's name, of one item alone")
        seen.add(item.id)


def _is_done(known: BatchResult, folder: Path, *, retry_failed: bool) -> bool:
    if known.status in _TAKEN_UP:
        return False
    if not known.completed:
        return not retry_failed
    return all((folder / name).is_file() for name in known.files.values())


async def _generate(
    client: "AsyncClient",
    item: BatchItem,
    folder: Path,
    base: Path,
    manifest: _Manifest,
    known: BatchResult | None,
) -> BatchResult:
    """Submit an item, or take up what is known of it, and bring its files."""
    if known is not None and (known.completed or known.status in _TAKEN_UP):
        result = replace(known, error={})
    else:
        retries = 0 if known is None else known.retries + 1
        result = BatchResult(id=item.id, digest=item.digest, retries=retries)
        try:
            request_id = await _submit_with_room(client, item, base, manifest, retries)
        except (Unavailable, Cancelled):
            raise
        except (FastVideoError, OSError) as error:
            return replace(result, status="refused", error=_error(error))
        result = replace(result, status=_ACCEPTED, request_id=request_id)
    try:
        state = await _ended(client, result.request_id)
        result = replace(
            result,
            status=state.status.value,
            latents_digest=state.latents_digest,
            error=_error(state.error) if state.error is not None else {},
        )
        return replace(result, files=await _fetch(client, item, state, folder))
    except (Unavailable, Cancelled):
        raise
    except (FastVideoError, OSError) as error:
        status = _UNFETCHED if result.completed else result.status
        return replace(result, status=status, files={}, error=_error(error))


async def _ended(client: "AsyncClient", request_id: str) -> RequestState:
    """The request once it has ended. Nothing of it is shown, in a notebook neither."""
    await waited(client.watch(request_id), request_id, None, None, progress=False)
    return await client.get(request_id)


async def _submit_with_room(
    client: "AsyncClient", item: BatchItem, base: Path, manifest: _Manifest, retries: int
) -> str:
    """As `_submit`, but waits while a quota is used up, as long as the server says each time."""
    began_s = time.monotonic()
    while True:
        try:
            return await _submit(client, item, base, manifest, retries)
        except ResourceExhausted as error:
            wait_s = error.attributes.get("retry_after_s", "")
            waited_s = time.monotonic() - began_s
            if not wait_s.isdecimal() or waited_s + int(wait_s) > WAIT_S_MAX:
                raise
        await asyncio.sleep(int(wait_s) * random.uniform(1.0, 1.1))


async def _submit(
    client: "AsyncClient", item: BatchItem, base: Path, manifest: _Manifest, retries: int
) -> str:
    """The id of the request, which a repeat of the same finds again."""
    state = await client.submit(
        item.prompt,
        model_id=item.model,
        negative_prompt=item.negative_prompt,
        image=base / item.image if item.image else None,
        sampling=item.sampling,
        outputs=item.outputs,
        priority=item.priority,
        idempotency_key=f"batch-{manifest.batch_id}-{item.id}-{item.digest}-{retries}",
    )
    return state.spec.request_id


async def _fetch(
    client: "AsyncClient", item: BatchItem, state: RequestState, folder: Path
) -> dict[str, str]:
    if state.status is not RequestStatus.COMPLETED:
        return {}
    files = {}
    for record in state.artifacts:
        name = f"{item.id}.{record.name}"
        await client.save_artifact(record.artifact_id, folder / name)
        files[record.name] = name
    return files


def _error(error: Any) -> dict[str, str]:
    if isinstance(error, OSError):
        subject = str(error.filename or "")
        return {"reason": "OS_ERROR", "message": str(error), "subject": subject}
    return {"reason": error.reason, "message": error.message, "subject": error.subject}


def _tell(on_item: OnItem | None, result: BatchResult) -> None:
    if on_item is not None:
        on_item(result)


def _raise_first(errors: BaseExceptionGroup[BaseException]) -> NoReturn:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    raise error from None
