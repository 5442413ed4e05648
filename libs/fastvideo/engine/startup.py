"""Models from cold to warm, on the thread that will compute, and how long each part took."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from fastvideo.deployment.catalog import Catalog
from fastvideo.engine.executor import Executor
from fastvideo.engine.instance import ModelInstance
from fastvideo.engine.residents import Residents
from fastvideo.engine.threads import choose_threads
from fastvideo.engine.warmup import measure_threads, warm_up
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How models were started; times in seconds."""

    # Stays set in the thread that started them.
    threads: int
    # Reading, verifying and placing of weights.
    load_seconds: float
    # The probe that chose the threads, with the loading that it led to; 0 when they were given.
    probe_seconds: float
    # The first runs of every model's loops.
    warm_up_seconds: float


def start_models(
    catalog: Catalog,
    residents: Residents,
    executor: Executor,
    model_ids: Sequence[str],
    threads: int | None,
) -> Start:
    """Load and warm the models.

    Without a count of threads the fastest is found by a short probe on the first model. Raises
    what loading raises.
    """
    began_s = time.monotonic()
    torch.set_num_threads(threads or 1)
    chosen = threads or 1
    instances = [_load(residents, model_id) for model_id in model_ids]
    loaded_s = time.monotonic()
    if threads is None and instances:
        chosen = _measure(catalog, executor, instances[0])
        torch.set_num_threads(chosen)
        if chosen > 1:
            # What a model measures of the machine while it loads depends on the count.
            for instance in instances:
                residents.unload(instance.model_instance_id)
            instances = [_load(residents, model_id) for model_id in model_ids]
    probed_s = time.monotonic()
    for instance in instances:
        entry = catalog.get(instance.card.model_id)
        warm_up(executor, instance.model_instance_id, entry)
    start = Start(
        threads=chosen,
        load_seconds=loaded_s - began_s,
        probe_seconds=probed_s - loaded_s if threads is None else 0.0,
        warm_up_seconds=time.monotonic() - probed_s,
    )
    _LOG.info(
        "models started",
        threads=chosen,
        load_seconds=round(start.load_seconds, 3),
        probe_seconds=round(start.probe_seconds, 3),
        warm_up_seconds=round(start.warm_up_seconds, 3),
    )
    return start


def _load(residents: Residents, model_id: str) -> ModelInstance:
    instance = residents.load(model_id)
    _LOG.info(
        "model loaded",
        model_id=model_id,
        model_instance_id=instance.model_instance_id,
        weights_bytes=instance.weights_bytes,
    )
    return instance


def _measure(catalog: Catalog, executor: Executor, instance: ModelInstance) -> int:
    entry = catalog.get(instance.card.model_id)
    available = len(os.sched_getaffinity(0))
    chosen, measured = choose_threads(
        sorted({1, min(2, available), available}),
        lambda count: measure_threads(executor, instance.model_instance_id, entry, count),
    )
    _LOG.info(
        "threads measured",
        chosen=chosen,
        seconds={str(found.threads): round(found.seconds, 4) for found in measured},
    )
    return chosen
