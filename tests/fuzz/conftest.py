"""Places for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fuzz.places import Place, place_of


@pytest.fixture
async def place(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Place]:
    """A gateway, artifacts and sessions, where nobody works."""
    async with place_of(postgres_dsn, tmp_path) as made:
        yield made


@pytest.fixture
async def keyed_place(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Place]:
    """The same, where requests end by themselves and callers show a key."""
    async with place_of(postgres_dsn, tmp_path, hand=True, keyed=True) as made:
        yield made


@pytest.fixture
async def working_place(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Place]:
    """A place where requests end by themselves."""
    async with place_of(postgres_dsn, tmp_path, hand=True) as made:
        yield made
