"""A worker as a process of its own, a scheduler's client, and the services around it."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from fastvideo.deployment.catalog import Catalog, CatalogEntry
from fastvideo.requests.draft import RequestDraft
from fastvideo.requests.types import OutputSpec, RequestSpec, SamplingOverrides, TextPart
from fastvideo.requests.validation import resolve_request
from tests.integration.worker.driving import Driver
from tests.integration.worker.processes import WorkerProcess, start_process, wait_ready
from tests.integration.worker.scheduler_client import SchedulerClient
from tests.integration.worker.surroundings import Surroundings, serving

MODEL_ID = "moving-digits"


@pytest.fixture(scope="session")
def surroundings() -> Iterator[Surroundings]:
    with serving() as running:
        yield running


StartWorker = Callable[..., WorkerProcess]


@pytest.fixture(scope="session")
def start_worker(
    surroundings: Surroundings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartWorker]:
    """Starts workers, waits until they are ready, and ends them all."""
    started: list[WorkerProcess] = []

    def start(name: str = "worker-1", environment: Mapping[str, str] | None = None) -> Any:
        log = tmp_path_factory.mktemp(name) / "log"
        worker = start_process(name, surroundings, log, environment or {})
        started.append(worker)
        wait_ready(worker)
        return worker

    yield start
    for worker in started:
        if worker.process.poll() is None:
            worker.process.kill()
        worker.process.wait(30)


@pytest.fixture(scope="session")
def worker(start_worker: StartWorker) -> WorkerProcess:
    """One worker that the tests share; each attaches with a newer epoch."""
    return start_worker()


# Room for later epochs of the same test.
_EPOCHS = itertools.count(10, 10)


@pytest.fixture
def epoch() -> int:
    """An epoch newer than any before."""
    return next(_EPOCHS)


@pytest.fixture(scope="session")
def entry() -> CatalogEntry:
    return Catalog.load([MODEL_ID]).get(MODEL_ID)


@pytest.fixture
def make_spec(entry: CatalogEntry) -> Callable[..., RequestSpec]:
    """Resolved requests as the gateway makes them."""

    def make(
        request_id: str,
        prompt: str = "a red three moving left",
        outputs: OutputSpec | None = None,
        session_id: str = "",
        **sampling: Any,
    ) -> RequestSpec:
        draft = RequestDraft(
            model_id=MODEL_ID,
            inputs=(TextPart(role="prompt", text=prompt),),
            sampling=SamplingOverrides(**{"seed": 7, "steps": 4} | sampling),
            outputs=outputs,
            session_id=session_id,
        )
        return resolve_request(
            draft,
            entry,
            request_id=request_id,
            tenant_id="",
            random_seed=1,
            now=datetime.now(UTC),
        )

    return make


@pytest.fixture
def attach(worker: WorkerProcess, epoch: int) -> Callable[..., SchedulerClient]:
    """Attaches to the shared worker, with this test's epoch unless another is given."""

    def make(epoch_: int = epoch, **options: Any) -> SchedulerClient:
        return SchedulerClient(worker.address, epoch_, **options)

    return make


@pytest.fixture
def driver() -> type[Driver]:
    return Driver


@pytest.fixture
def client_type() -> type[SchedulerClient]:
    return SchedulerClient
