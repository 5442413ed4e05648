"""An artifacts service for each test, or what sweeps work on."""

import secrets
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.test_blobs import BUCKET, s3_options
from tests.integration.artifacts.sweeps import Shop, shop_of
from tests.integration.artifacts.worlds import World, world_of


@pytest.fixture
async def world(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[World]:
    """The service over an empty log and an empty folder."""
    async with world_of(postgres_dsn, (tmp_path / "blobs").as_uri()) as running:
        yield running


@pytest.fixture
async def shop(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Shop]:
    """What sweeps work on, over an empty folder."""
    async with shop_of(postgres_dsn, (tmp_path / "blobs").as_uri()) as opened:
        yield opened


@pytest.fixture
async def shop_on_s3(postgres_dsn: str, s3_bucket: str) -> AsyncIterator[Shop]:
    """The same over a bucket."""
    url = f"s3://{BUCKET}/{secrets.token_hex(4)}"
    async with shop_of(postgres_dsn, url, s3_options(s3_bucket)) as opened:
        yield opened


@pytest.fixture(scope="session")
def s3_bucket(s3_endpoint: str) -> str:
    """The endpoint, once it has the bucket."""
    request = urllib.request.Request(f"{s3_endpoint}/{BUCKET}", method="PUT")
    urllib.request.urlopen(request, timeout=60).close()
    return s3_endpoint
