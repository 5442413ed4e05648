"""An embedded stack of its own for a benchmark."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fastvideo.local import StackAddresses, find_running

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


def start(data: Path, workers: int, env: Mapping[str, str]) -> None:
    """`fastvideo up --detach`, which returns when all is ready."""
    command = [*FASTVIDEO, "up", "--detach", "--data", str(data), "--workers", str(workers)]
    subprocess.run(command, check=True, env=dict(env), stdout=subprocess.DEVNULL)
