"""One stack for all black-box tests."""

from collections.abc import Iterator

import pytest

from tests.e2e.stack import Stack, running_stack


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """A running stack with one worker; tests add requests to it and must not stop it."""
    with running_stack() as running:
        yield running
