"""Both services for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.sessions.worlds import SessionWorld, session_world
from tests.plugins.servers import NatsServer


@pytest.fixture
async def world(postgres_dsn: str, own_nats: NatsServer) -> AsyncIterator[SessionWorld]:
    """With a NATS of the test's own, since the stream's name is fixed."""
    own_nats.start()
    async with session_world(postgres_dsn, own_nats.url) as running:
        yield running
