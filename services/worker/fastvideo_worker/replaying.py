"""How a worker replays logged runs: in a process of its own that gives way to everybody."""

import sys
from collections.abc import Sequence
from typing import Final

from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.errors import FailedPrecondition
from fastvideo.replay.process import tls_options
from fastvideo_worker.config import Config

_NICE: Final = 10


def replay_command(config: Config) -> tuple[str, ...]:
    """How the process is started for a worker of a configuration."""
    command = [sys.executable, "-m", "fastvideo.recompute", "--nice", str(_NICE)]
    if config.checkpoints is not None:
        command += ["--checkpoints", str(config.checkpoints)]
    for package in config.families:
        command += ["--family", package]
    if config.artifacts_address:
        command += ["--artifacts", config.artifacts_address]
        command += tls_options(config.tls.client)
    return tuple(command)


def check_request(request: worker_pb2.ReplayRequest, models: Sequence[str]) -> None:
    """Raise FailedPrecondition for a run of a model that this worker does not serve."""
    model_id = request.run.spec.model_id
    if model_id not in models:
        raise FailedPrecondition(
            f"this worker does not serve {model_id}",
            reason="MODEL_NOT_LOADED",
            subject=model_id,
            attributes={"served": ", ".join(models)},
        )
