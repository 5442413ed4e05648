"""What every blob store does."""

import asyncio
import hashlib
import secrets
import urllib.request
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import psutil
import pytest

from fastvideo.blobs import Blob, BlobStore, CorruptBlob, KeptByStore, open_blobs
from fastvideo.blobs.port import CHUNK_BYTES_MAX
from fastvideo.errors import InvalidField, NotFound, Unavailable

BUCKET = "blobs"


@pytest.fixture(params=["memory", "local", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "memory":
        return open_blobs("memory:///")
    if request.param == "local":
        return open_blobs(f"file://{tmp_path}/blobs%20here")
    endpoint = request.getfixturevalue("s3_bucket")
    return open_blobs(f"s3://{BUCKET}/{secrets.token_hex(4)}", s3_options(endpoint))


def s3_options(endpoint: str) -> dict[str, str]:
    return {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": "key",
        "secret_access_key": "secret",
    }


@pytest.fixture(scope="session")
def s3_bucket(s3_endpoint: str) -> str:
    """The endpoint of an S3 that has the bucket: a PUT of its name makes it."""
    request = urllib.request.Request(f"{s3_endpoint}/{BUCKET}", method="PUT")
    urllib.request.urlopen(request, timeout=60).close()
    return s3_endpoint


async def chunks_of(data: bytes, size: int = 300_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def read(blobs: BlobStore, digest: str, start: int = 0, stop: int | None = None) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(digest, start, stop)])


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [0, 1, 1000, 5 << 20, 12_345_678])
async def test_bytes_come_back_by_their_digest(blobs: BlobStore, size: int) -> None:
    data = secrets.token_bytes(size)
    blob = await blobs.put(chunks_of(data), digest_of(data))
    assert blob == Blob(digest_of(data), size)
    assert await read(blobs, blob.digest) == data
    assert await blobs.head(blob.digest) == blob
    assert await blobs.exists(blob.digest)


async def test_chunks_are_bounded(blobs: BlobStore) -> None:
    blob = await blobs.put(chunks_of(bytes(5_000_000), size=5_000_000))
    sizes = [len(chunk) async for chunk in blobs.read(blob.digest)]
    assert max(sizes) <= CHUNK_BYTES_MAX
    assert sum(sizes) == 5_000_000


@pytest.mark.parametrize(
    ("start", "stop"), [(0, None), (5, None), (0, 10), (7, 9), (999_999, 1_000_000), (4, 4)]
)
async def test_ranges(blobs: BlobStore, start: int, stop: int | None) -> None:
    data = secrets.token_bytes(1_000_000)
    blob = await blobs.put(chunks_of(data))
    assert await read(blobs, blob.digest, start, stop) == data[start:stop]


@pytest.mark.parametrize(("start", "stop"), [(-1, 5), (5, 4), (0, 1001), (1001, None)])
async def test_a_range_that_is_not_there_is_refused(
    blobs: BlobStore, start: int, stop: int | None
) -> None:
    blob = await blobs.put(chunks_of(bytes(1000)))
    with pytest.raises(InvalidField):
        await read(blobs, blob.digest, start, stop)


async def test_the_same_bytes_are_stored_once(blobs: BlobStore) -> None:
    data = secrets.token_bytes(1000)
    puts = await asyncio.gather(*(blobs.put(chunks_of(data)) for _ in range(4)))
    assert len(set(puts)) == 1
    assert [blob async for blob in blobs.list()] == [puts[0]]


async def test_another_digest_than_expected_is_refused_and_leaves_nothing(
    blobs: BlobStore,
) -> None:
    with pytest.raises(InvalidField):
        await blobs.put(chunks_of(b"one thing"), digest_of(b"another thing"))
    assert [blob async for blob in blobs.list()] == []
    assert await blobs.remove_unfinished(datetime.now(UTC) + timedelta(hours=1)) == 0


async def test_a_stream_that_breaks_off_leaves_nothing(blobs: BlobStore) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield bytes(11 << 20)
        raise ConnectionResetError("sender gone")

    with pytest.raises(ConnectionResetError, match="sender gone"):
        await blobs.put(broken())
    assert [blob async for blob in blobs.list()] == []
    assert await blobs.remove_unfinished(datetime.now(UTC) + timedelta(hours=1)) == 0


async def test_what_is_not_there_is_not_found(blobs: BlobStore) -> None:
    missing = digest_of(b"missing")
    assert not await blobs.exists(missing)
    with pytest.raises(NotFound):
        await blobs.head(missing)
    with pytest.raises(NotFound):
        await read(blobs, missing)
    await blobs.delete(missing)


async def test_blobs_that_are_older_than_a_moment_are_removed(blobs: BlobStore) -> None:
    now = datetime.now(UTC)
    stored = [await blobs.put(chunks_of(secrets.token_bytes(100))) for _ in range(3)]
    assert await blobs.remove_older(now - timedelta(hours=1)) == 0
    assert {blob async for blob in blobs.list()} == set(stored)
    assert await blobs.remove_older(now + timedelta(hours=1)) == 3
    assert [blob async for blob in blobs.list()] == []
    assert await blobs.remove_older(now + timedelta(hours=1)) == 0


@pytest.mark.parametrize("digest", ["", "abc", "../../etc/passwd", "A" * 64])
async def test_what_is_no_digest_is_refused(blobs: BlobStore, digest: str) -> None:
    for call in (blobs.head, blobs.exists, blobs.delete):
        with pytest.raises(InvalidField):
            await call(digest)


async def test_a_deleted_blob_is_gone_and_the_others_stay(blobs: BlobStore) -> None:
    kept, gone = [await blobs.put(chunks_of(secrets.token_bytes(100))) for _ in range(2)]
    await blobs.delete(gone.digest)
    assert not await blobs.exists(gone.digest)
    assert [blob async for blob in blobs.list()] == [kept]


async def test_what_others_put_beside_the_blobs_is_none(tmp_path: Path) -> None:
    blobs = open_blobs(tmp_path.as_uri())
    kept = await blobs.put(chunks_of(b"kept"))
    for name in ("sha256/README", f"sha256/{kept.digest[:2]}/{kept.digest[2:]}.bak"):
        (tmp_path / name).write_bytes(b"a note")
    assert [blob async for blob in blobs.list()] == [kept]


async def test_many_blobs_are_listed(blobs: BlobStore) -> None:
    put = [await blobs.put(chunks_of(bytes([i]) * 10)) for i in range(60)]
    assert {blob async for blob in blobs.list()} == set(put)


async def test_changed_bytes_are_noticed(tmp_path: Path) -> None:
    blobs = open_blobs(f"file://{tmp_path}")
    blob = await blobs.put(chunks_of(b"the bytes"))
    (tmp_path / "sha256" / blob.digest[:2] / blob.digest[2:]).write_bytes(b"the bits!")
    with pytest.raises(CorruptBlob):
        await read(blobs, blob.digest)


async def test_a_put_makes_changed_bytes_whole_again(tmp_path: Path) -> None:
    blobs = open_blobs(f"file://{tmp_path}")
    blob = await blobs.put(chunks_of(b"the bytes"))
    (tmp_path / "sha256" / blob.digest[:2] / blob.digest[2:]).write_bytes(b"the bits!")
    assert await blobs.put(chunks_of(b"the bytes")) == blob
    assert await read(blobs, blob.digest) == b"the bytes"
    assert [found async for found in blobs.list()] == [blob]


async def test_what_a_dead_put_left_is_removed_when_old(tmp_path: Path) -> None:
    blobs = open_blobs(f"file://{tmp_path}")
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "0123").write_bytes(b"half")
    assert await blobs.remove_unfinished(datetime.now(UTC) - timedelta(hours=1)) == 0
    assert await blobs.remove_unfinished(datetime.now(UTC) + timedelta(hours=1)) == 1
    assert await blobs.remove_unfinished(datetime.now(UTC) + timedelta(hours=1)) == 0


async def test_a_put_holds_a_bounded_part_of_its_bytes(tmp_path: Path) -> None:
    blobs = open_blobs(f"file://{tmp_path}")
    process = psutil.Process()
    before = process.memory_info().rss
    held: list[int] = []

    async def long_stream() -> AsyncIterator[bytes]:
        for i in range(160):
            held.append(process.memory_info().rss - before)
            yield bytes([i]) * (1 << 20)

    blob = await blobs.put(long_stream())
    assert blob.size_bytes == 160 << 20
    assert max(held) < 64 << 20


@pytest.mark.parametrize("url", ["ftp://host/x", "/folder", "", "http://host/"])
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidField):
        open_blobs(url)


EMPTY = hashlib.sha256(b"").hexdigest()
ONE_REFUSED = (
    '<?xml version="1.0"?><DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Error>'
    f"<Key>x/sha256/{EMPTY[:2]}/{EMPTY[2:]}</Key><Code>AccessDenied</Code>"
    "<Message>no</Message></Error></DeleteResult>"
)


@pytest.mark.parametrize(("status", "body"), [(403, b""), (200, ONE_REFUSED.encode())])
async def test_a_store_that_refuses_to_remove_says_so(status: int, body: bytes) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        blobs = open_blobs("s3://blobs/x", s3_options(f"http://127.0.0.1:{server.server_port}"))
        with pytest.raises(KeptByStore):
            await asyncio.wait_for(blobs.delete(EMPTY), 60.0)
    finally:
        await asyncio.to_thread(server.shutdown)
        serving.join()
        server.server_close()


async def test_a_store_that_does_not_answer_is_unavailable() -> None:
    blobs = open_blobs("s3://blobs/x", s3_options("http://127.0.0.1:1"))
    with pytest.raises(Unavailable):
        await asyncio.wait_for(blobs.exists(digest_of(b"")), 60.0)
