"""Workers as processes of their own."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from tests.integration.worker.surroundings import Surroundings
from tests.plugins.servers import free_port

START_S_MAX = 180.0


@dataclass
class WorkerProcess:
    """A running worker."""

    process: subprocess.Popen[bytes]
    address: str
    log: Path
    started_s: float
    ready_after_s: float = 0.0


def start_process(
    name: str, surroundings: Surroundings, log: Path, environment: Mapping[str, str]
) -> WorkerProcess:
    """A worker that has just been started; see `wait_ready`."""
    port = free_port()
    env = {
        **os.environ,
        "FASTVIDEO_SERVICE_ID": name,
        "FASTVIDEO_LISTEN": f"127.0.0.1:{port}",
        "FASTVIDEO_SCHEDULER_ADDRESSES": surroundings.address,
        "FASTVIDEO_ARTIFACTS_ADDRESS": surroundings.address,
        "FASTVIDEO_THREADS": "1",
        "FASTVIDEO_COMPUTE_SLOTS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        **environment,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "fastvideo_worker"],
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return WorkerProcess(process, f"127.0.0.1:{port}", log, time.monotonic())


def wait_ready(worker: WorkerProcess) -> None:
    """Return once it is ready; the test fails, with its log, when it does not become so."""
    deadline_s = time.monotonic() + START_S_MAX
    with grpc.insecure_channel(worker.address) as channel:
        stub: Any = worker_pb2_grpc.WorkerServiceStub(channel)
        while time.monotonic() < deadline_s:
            if worker.process.poll() is not None:
                break
            try:
                health = stub.Health(worker_pb2.HealthRequest(), timeout=1, wait_for_ready=True)
            except grpc.RpcError:
                continue
            if health.ready:
                worker.ready_after_s = time.monotonic() - worker.started_s
                return
            time.sleep(0.02)
    worker.process.kill()
    worker.process.wait(30)
    pytest.fail(f"the worker did not become ready:\n{worker.log.read_text()[-4000:]}")
