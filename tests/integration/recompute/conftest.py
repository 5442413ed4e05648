"""An engine that makes the originals, and replays of them by hosts of their own."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastvideo.engine.engine import Engine
from fastvideo.recompute.execution import replay
from fastvideo.recompute.host import Host, HostSetup
from fastvideo.replay.types import LoggedRun, ReplayKind, ReplayReport, ReplayRequest

Replay = Callable[..., ReplayReport]


@pytest.fixture(scope="package")
def engine() -> Iterator[Engine]:
    with Engine(threads=1) as engine:
        yield engine


@pytest.fixture
def replay_run() -> Replay:
    """Replays a run on a host that is made for it."""

    def run(
        run: LoggedRun, sources: Any = None, setup: HostSetup | None = None, **options: Any
    ) -> ReplayReport:
        request = ReplayRequest(kind=ReplayKind.EXECUTION, **options)
        return replay(request, run, Host(run, setup, sources), lambda _: None)

    return run
