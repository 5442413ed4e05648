"""How a worker stands, read whenever somebody scrapes."""

from collections.abc import Callable, Iterable

from fastvideo.engine.executor import Executor
from fastvideo.memory.pools import MemoryPools, PoolUsage
from fastvideo.telemetry import metrics
from fastvideo.telemetry.instruments import (
    ATTACHED,
    LOOPS,
    MEMORY_LIMIT,
    MEMORY_RESERVED,
    MEMORY_USED,
    POOL,
)
from fastvideo.telemetry.metrics import Level
from fastvideo_worker.service import WorkerService


def observe_worker(pools: MemoryPools, executor: Executor, service: WorkerService) -> None:
    """Let the worker's gauges be read; once a process."""

    def of_pools(amount: Callable[[PoolUsage], int]) -> Iterable[Level]:
        for tag, usage in pools.usage().items():
            yield amount(usage), {POOL: tag.value}

    metrics.observe(MEMORY_USED, lambda: of_pools(lambda usage: usage.in_use))
    metrics.observe(MEMORY_RESERVED, lambda: of_pools(lambda usage: usage.reserved))
    metrics.observe(MEMORY_LIMIT, lambda: of_pools(lambda usage: usage.budget))
    metrics.observe(LOOPS, lambda: [(executor.loops, {})])
    metrics.observe(ATTACHED, lambda: [(int(service.is_attached), {})])
