"""A gateway for each test."""

from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest

from fastvideo_gateway import behaviors, listing
from fastvideo_sessions import service as sessions
from tests.integration.gateway.worlds import World, gateway_config, world_of

FRESHNESS_WAIT_S: Final = 60.0


@pytest.fixture(scope="module", autouse=True)
def patient_lists() -> Iterator[None]:
    """Lists wait for the log however busy the machine is; after a second old ones would do."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (listing, behaviors, sessions):
            patched.setattr(module, "FRESHNESS_WAIT_S", FRESHNESS_WAIT_S)
        yield


@pytest.fixture
async def world(postgres_dsn: str) -> AsyncIterator[World]:
    """A gateway over an empty log, without NATS."""
    async with world_of(gateway_config(postgres_dsn)) as running:
        yield running
