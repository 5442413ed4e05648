"""A gateway for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.gateway.worlds import World, gateway_config, world_of


@pytest.fixture
async def world(postgres_dsn: str) -> AsyncIterator[World]:
    """A gateway over an empty log, without NATS."""
    async with world_of(gateway_config(postgres_dsn)) as running:
        yield running
