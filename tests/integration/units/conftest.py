"""An engine that serves the pocket family beside the embedded model."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fastvideo.cache.memory_tier import MemoryTier
from fastvideo.engine.engine import Engine
from tests.families.pocket.checkpoint import write_checkpoint
from tests.families.served import POCKET, Log, logged, run


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pocket checkpoint."""
    folder = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(folder / "pocket")
    return folder


@pytest.fixture(scope="session")
def make_engine(checkpoints: Path) -> Iterator[Callable[..., Engine]]:
    """Starts engines and closes them all."""
    engines: list[Engine] = []

    def make(models: Sequence[str] = ("pocket",), **options: Any) -> Engine:
        given: dict[str, Any] = {"checkpoints": checkpoints, "tier": MemoryTier(1 << 20)} | options
        engine = Engine(models, threads=1, families=(POCKET,), **given)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture(scope="session")
def engine(make_engine: Callable[..., Engine]) -> Engine:
    """One engine for the session, with both models."""
    return make_engine(("pocket", "moving-digits"))


@pytest.fixture
def run_all() -> Callable[..., tuple[list[Any], Log]]:
    """Asks for all at once and waits for all."""
    return run


@pytest.fixture
def record() -> Callable[[Engine], Any]:
    """Notes every batch that an engine executes."""
    return logged
