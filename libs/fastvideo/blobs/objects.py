"""Blobs in an object store: a local folder, S3 or memory, through obstore.

A blob is written under `unfinished/` while its digest is not known, then renamed to
`sha256/ab/cdef...`. Locally the rename is atomic, and the bytes are on the disk before it; S3
copies on its side.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import obstore
import obstore.exceptions
from obstore.store import ObjectStore, from_url

from fastvideo.blobs.port import CHUNK_BYTES_MAX, Blob, CorruptBlob, KeptByStore
from fastvideo.errors import InvalidField, NotFound, Unavailable
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

_UNFINISHED = "unfinished"
_BLOBS = "sha256"

# Parts of an upload, and how many are under way: what a put holds in memory.
_PART_BYTES = 5 << 20
_PARTS_MAX = 2

_DIGEST = re.compile(r"[0-9a-f]{64}")
_SCHEMES = ("file", "memory", "s3")


def open_blobs(url: str, options: Mapping[str, str] | None = None) -> "ObjectBlobStore":
    """The blob store of a URL: `file:///folder`, `s3://bucket/prefix` or `memory:///`.

    `options` are those of obstore's S3 store (`endpoint`, `region`, `access_key_id`, ...); what
    they leave out comes from the usual `AWS_` variables. Raises InvalidField for another URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise InvalidField("blobs_url", url, "file:///folder, s3://bucket/prefix or memory:///")
    if parts.scheme == "file":
        folder = Path(unquote(parts.path))
        return ObjectBlobStore(from_url(url, mkdir=True), folder)
    if parts.scheme == "memory":
        return ObjectBlobStore(from_url(url))
    config: Any = dict(options or {})
    client: Any = {"allow_http": str(config.get("endpoint", "")).startswith("http://")}
    return ObjectBlobStore(from_url(url, config=config, client_options=client))


class ObjectBlobStore:
    """A `BlobStore` over an obstore store; `folder` is where a local one lies on the disk."""

    def __init__(self, store: ObjectStore, folder: Path | None = None) -> None:
        self._store = store
        self._folder = folder

    async def put(self, chunks: AsyncIterable[bytes], expected_digest: str | None = None) -> Blob:
        name = f"{_UNFINISHED}/{secrets.token_hex(16)}"
        passing = _Passing(chunks)
        try:
            with _errors_of_the_store(name, passing):
                await obstore.put_async(
                    self._store,
                    name,
                    passing.through(),
                    chunk_size=_PART_BYTES,
                    max_concurrency=_PARTS_MAX,
                )
            blob = passing.blob
            if expected_digest not in (None, blob.digest):
                raise InvalidField("expected_digest", expected_digest, blob.digest)
            await self._finish(name, blob)
        finally:
            await self._discard(name)
        return blob

    async def read(
        self, digest: str, start: int = 0, stop: int | None = None
    ) -> AsyncIterator[bytes]:
        size = (await self.head(digest)).size_bytes
        end = size if stop is None else stop
        if not 0 <= start <= end <= size:
            raise InvalidField("range", (start, stop), f"within 0 to {size}")
        if start == end:
            return
        hashed = hashlib.sha256()
        with _errors_of_the_store(digest):
            result = await obstore.get_async(
                self._store, _path(digest), options={"range": (start, end)}
            )
            async for buffer in result.stream(min_chunk_size=CHUNK_BYTES_MAX // 4):
                view = memoryview(buffer)
                for i in range(0, len(view), CHUNK_BYTES_MAX):
                    chunk = bytes(view[i : i + CHUNK_BYTES_MAX])
                    hashed.update(chunk)
                    yield chunk
        if end - start == size and hashed.hexdigest() != digest:
            raise CorruptBlob(f"blob {digest} has the digest {hashed.hexdigest()}", subject=digest)

    async def head(self, digest: str) -> Blob:
        path = _path(digest)
        with _errors_of_the_store(digest):
            return Blob(digest, (await obstore.head_async(self._store, path))["size"])

    async def exists(self, digest: str) -> bool:
        try:
            await self.head(digest)
        except NotFound:
            return False
        return True

    async def delete(self, digest: str) -> None:
        path = _path(digest)
        with contextlib.suppress(NotFound), _errors_of_the_store(digest):
            try:
                await obstore.delete_async(self._store, path)
            except obstore.exceptions.BaseError as error:
                if not _is_refusal(error):
                    raise
                raise KeptByStore("the blob store refuses to remove it", subject=digest) from error

    async def list(self) -> AsyncIterator[Blob]:
        with _errors_of_the_store(_BLOBS):
            async for page in obstore.list(self._store, prefix=_BLOBS):
                for found in page:
                    digest = found["path"].removeprefix(f"{_BLOBS}/").replace("/", "")
                    # Whatever else lies there is nobody's blob.
                    if _DIGEST.fullmatch(digest):
                        yield Blob(digest, found["size"], found["last_modified"])

    async def remove_older(self, before: datetime) -> int:
        return await self._remove_older(_BLOBS, before)

    async def remove_unfinished(self, before: datetime) -> int:
        return await self._remove_older(_UNFINISHED, before)

    async def _remove_older(self, prefix: str, before: datetime) -> int:
        removed = 0
        with _errors_of_the_store(prefix):
            async for page in obstore.list(self._store, prefix=prefix):
                for found in page:
                    if found["last_modified"] < before:
                        await obstore.delete_async(self._store, found["path"])
                        removed += 1
        return removed

    async def _finish(self, name: str, blob: Blob) -> None:
        """Give whole bytes their lasting name; a remote store that has them keeps its own.

        On a disk they take the place of what is there: it costs a rename, and bytes that the
        disk has changed are whole again.
        """
        if self._folder is None and await self._has(blob):
            return
        if self._folder is not None:
            await asyncio.to_thread(_flush, self._folder / name)
        with _errors_of_the_store(name):
            await obstore.rename_async(self._store, name, _path(blob.digest))
        if self._folder is not None:
            await asyncio.to_thread(_flush, (self._folder / _path(blob.digest)).parent)

    async def _has(self, blob: Blob) -> bool:
        try:
            return await self.head(blob.digest) == blob
        except NotFound:
            return False

    async def _discard(self, name: str) -> None:
        """Remove what a put left; after a success there is nothing."""
        with contextlib.suppress(NotFound, Unavailable), _errors_of_the_store(name):
            await obstore.delete_async(self._store, name)


class _Passing:
    """Size and digest of chunks that pass through."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = chunks
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        # What the chunks' own source raised: that is no error of the store.
        self.failure: Exception | None = None

    @property
    def blob(self) -> Blob:
        return Blob(self._hash.hexdigest(), self._size_bytes)

    async def through(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._chunks:
                self._hash.update(chunk)
                self._size_bytes += len(chunk)
                yield chunk
        except Exception as error:
            self.failure = error
            raise


def _path(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise InvalidField("digest", digest, "64 lower-case hexadecimal digits (SHA-256)")
    return f"{_BLOBS}/{digest[:2]}/{digest[2:]}"


def _flush(path: Path) -> None:
    """Write a file's bytes, or a folder's names, through to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_refusal(error: obstore.exceptions.BaseError) -> bool:
    """Whether a store does not allow a removal: all of them, or that one, which S3 answers as 200
    with a code."""
    denied = isinstance(error, obstore.exceptions.PermissionDeniedError)
    return denied or "(code: AccessDenied)" in str(error).partition("\n")[0]


@contextlib.contextmanager
def _errors_of_the_store(subject: str, passing: _Passing | None = None) -> Iterator[None]:
    try:
        yield
    except (obstore.exceptions.BaseError, OSError) as error:
        if passing is not None and passing.failure is not None:
            raise passing.failure from None
        if isinstance(error, FileNotFoundError | obstore.exceptions.NotFoundError):
            raise NotFound(
                f"there is no blob {subject}", reason="BLOB_NOT_FOUND", subject=subject
            ) from error
        # What the store says may hold paths and addresses; it is for this process's log alone.
        _LOG.warning("the blob store failed", blob=subject, error=str(error).partition("\n")[0])
        raise Unavailable("the blob store does not answer", subject=subject) from error
