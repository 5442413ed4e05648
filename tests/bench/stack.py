"""An embedded stack of its own for a benchmark."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastvideo.local import StackAddresses, find_running
from fastvideo.local.credentials import load_credentials
from fastvideo.local.folder import DataFolder
from fastvideo.local.servers import APP, postgres_dsn

FASTVIDEO = (str(Path(sys.executable).parent / "fastvideo"),)


@contextmanager
def embedded_stack(
    *, workers: int = 1, environment: Mapping[str, str] | None = None
) -> Iterator[StackAddresses]:
    """A stack in a fresh folder, ready; stopped and removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="fastvideo-bench-", dir="/tmp") as folder:
        data = Path(folder)
        data.chmod(0o755)  # As root, Postgres runs as a user of its own.
        env = {**os.environ, **(environment or {})}
        start(data, workers, env)
        try:
            addresses = find_running(data)
            if addresses is None:
                raise RuntimeError("the stack is not ready after `up`")
            yield addresses
        finally:
            subprocess.run([*FASTVIDEO, "down", "--data", folder], check=True, env=env)


def start(data: Path, workers: int, env: Mapping[str, str], schedulers: int = 1) -> None:
    """`fastvideo up --detach`, which returns when all is ready."""
    command = [*FASTVIDEO, "up", "--detach", "--data", str(data), "--workers", str(workers)]
    command += ["--schedulers", str(schedulers)]
    subprocess.run(command, check=True, env=dict(env), stdout=subprocess.DEVNULL)


@dataclass(frozen=True)
class Fragile:
    """A stack whose parts a benchmark kills."""

    data: Path
    gateway: str

    def pid(self, name: str) -> int:
        """The process of a part; 0 while it is not ready."""
        command = [*FASTVIDEO, "status", "--json", "--data", str(self.data)]
        told = subprocess.run(command, check=False, capture_output=True, text=True).stdout
        for part in json.loads(told)["parts"]:
            if part["name"] == name and part["state"] == "ready":
                return int(part["pid"])
        return 0

    def address(self, name: str) -> str:
        """Where a part listens."""
        return f"127.0.0.1:{json.loads(DataFolder(self.data).ports.read_text())[name]}"

    @property
    def postgres_dsn(self) -> str:
        """The event log."""
        credentials = load_credentials(DataFolder(self.data).credentials)
        if credentials is None:
            raise RuntimeError("the stack has no credentials")
        port = int(self.address("postgres").rpartition(":")[2])
        return postgres_dsn(APP, credentials.postgres_app, port)


@contextmanager
def fragile_stack(
    *, workers: int, schedulers: int, environment: Mapping[str, str] | None = None
) -> Iterator[Fragile]:
    """A stack of several schedulers and workers, ready; stopped and removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="fastvideo-bench-", dir="/tmp") as folder:
        data = Path(folder)
        data.chmod(0o755)  # As root, Postgres runs as a user of its own.
        env = {**os.environ, **(environment or {})}
        start(data, workers, env, schedulers)
        try:
            addresses = find_running(data)
            if addresses is None:
                raise RuntimeError("the stack is not ready after `up`")
            yield Fragile(data, addresses.gateway)
        finally:
            subprocess.run([*FASTVIDEO, "down", "--data", folder], check=True, env=env)
