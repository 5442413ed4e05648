"""An artifacts service for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.artifacts.worlds import World, world_of


@pytest.fixture
async def world(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[World]:
    """The service over an empty log and an empty folder."""
    async with world_of(postgres_dsn, (tmp_path / "blobs").as_uri()) as running:
        yield running
