"""What a core knows, line by line, for whoever looks at it as it was."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from fastvideo.replay.types import Comparison
from fastvideo.scheduling.core import SchedulerCore, WorkerView
from fastvideo.scheduling.views import RequestView


def known_lines(core: SchedulerCore) -> Iterator[Comparison]:
    """A line for each worker and for each live request; nothing is compared with them."""
    for worker in core.workers:
        yield _line(f"worker {worker.worker_id}", worker)
    for request in core.requests:
        yield _line(f"request {request.request_id}", request)


def _line(subject: str, view: WorkerView | RequestView) -> Comparison:
    known = {name: value for name, value in asdict(view).items() if value not in ("", None, {})}
    return Comparison(subject=subject, equal=True, detail=json.dumps(known, ensure_ascii=False))
