"""Stacks of real servers and stand-in services, always ended."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from fastvideo.local.folder import DataFolder
from fastvideo.local.status import PartStatus, StackStatus, stack_status

T = TypeVar("T")

STAND_IN = Path(__file__).parent / "stand_in"
REPOSITORY = Path(__file__).parents[3]
_COMMAND_TIMEOUT_S = 180.0


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll until the condition holds; fails with `what` when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.02)


class Stack:
    """The stack's commands, on one data folder."""

    def __init__(
        self,
        data: Path,
        *,
        prefix: Sequence[str] = (sys.executable,),
        environment: Mapping[str, str] | None = None,
        commands: Path = STAND_IN / "stack_cli.py",
    ) -> None:
        self.data = data
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FASTVIDEO_", "PYTHON"))
        }
        self.environment |= {
            # In front of what is installed, so that the stand-ins are found first.
            "PYTHONPATH": os.pathsep.join([str(STAND_IN), str(REPOSITORY / "libs")]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "FASTVIDEO_DATA": str(data),
            **(environment or {}),
        }
        self._command = [*prefix, str(commands)]

    def run(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return subprocess.run(
            [*self._command, *arguments],
            env={**self.environment, **environment},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )

    def foreground(self) -> "subprocess.Popen[str]":
        """`fastvideo up` without --detach."""
        return subprocess.Popen(
            [*self._command, "up"],
            env=self.environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def up(self, *arguments: str) -> None:
        """Start it detached; it must work."""
        done = self.run("up", "--detach", *arguments)
        assert done.returncode == 0, done.stderr

    def down(self) -> None:
        """Stop it; it must work."""
        done = self.run("down")
        assert done.returncode == 0, done.stderr

    def status_json(self) -> dict[str, Any]:
        """What `status --json` prints."""
        found: dict[str, Any] = json.loads(self.run("status", "--json").stdout)
        return found

    def status(self) -> StackStatus:
        """What `status` shows, without the start of an interpreter."""
        return stack_status(DataFolder(self.data))

    def part(self, name: str) -> PartStatus:
        """One part of the status."""
        return next(part for part in self.status().parts if part.name == name)

    def family(self) -> list[psutil.Process]:
        """The supervisor and all processes below it, the supervisor first."""
        supervisor = psutil.Process(self.status().pid)
        return [supervisor, *supervisor.children(recursive=True)]

    def of_family(self, read: Callable[[psutil.Process], T]) -> list[T]:
        """What is read of each of them; Postgres begins and ends some at any time."""
        found = []
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(read(process))
        return found

    def kill(self, name: str, what: signal.Signals = signal.SIGKILL) -> None:
        """Signal the process of a part."""
        pid = self.part(name).pid
        assert pid is not None
        os.kill(pid, what)

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until every part is ready."""
        wait_until(lambda: self.status().ready, timeout_s, "the stack is ready")

    def destroy(self) -> None:
        """End what still runs and remove the folder."""
        lock = self.data / "stack.lock"
        if lock.exists() and self.run("down").returncode != 0:
            pid = lock.read_text().strip()
            if pid.isdigit() and psutil.pid_exists(int(pid)):
                os.kill(int(pid), signal.SIGKILL)
        shutil.rmtree(self.data, ignore_errors=True)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A temporary folder that every user may enter: pytest's own are closed to Postgres' user."""
    folder = Path(tempfile.mkdtemp(prefix="fastvideo-stack-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def fresh_stack(open_folder: Path) -> Iterator[Stack]:
    """A stack that never ran."""
    stack = Stack(open_folder / "data")
    yield stack
    stack.destroy()


@pytest.fixture(scope="session")
def stopped_data() -> Iterator[Path]:
    """The data folder of a stack that ran once: a start from it is quicker than the first."""
    folder = Path(tempfile.mkdtemp(prefix="fastvideo-stack-"))
    folder.chmod(0o755)
    stack = Stack(folder / "data")
    try:
        stack.up()
        stack.down()
        yield stack.data
    finally:
        stack.destroy()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def stack(open_folder: Path, stopped_data: Path) -> Iterator[Stack]:
    """A stack that is not running and has run before."""
    stack = Stack(open_folder / "data")
    # Owners and modes matter: Postgres' data is its user's.
    subprocess.run(["cp", "-a", stopped_data, stack.data], check=True)
    yield stack
    stack.destroy()


@pytest.fixture(scope="module")
def running() -> Iterator[Stack]:
    """A running stack that the tests of a module share; they leave it ready."""
    folder = Path(tempfile.mkdtemp(prefix="fastvideo-stack-"))
    folder.chmod(0o755)
    stack = Stack(folder / "data")
    try:
        stack.up()
        yield stack
    finally:
        stack.destroy()
        shutil.rmtree(folder, ignore_errors=True)
