"""A stack started as a user would, and what a test may ask of it from outside."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from fastvideo.events.catalog import event_of
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.types import Event
from fastvideo.local.credentials import load_credentials
from fastvideo.local.folder import DataFolder
from fastvideo.local.servers import APP, postgres_dsn

T = TypeVar("T")

PROGRAM = str(Path(sys.executable).with_name("fastvideo"))
START_S_MAX = 180.0
COMMAND_S_MAX = 180.0
READ_MAX = 1000


@dataclass(frozen=True)
class Outcome:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


class Stack:
    """An embedded stack in a folder of its own."""

    def __init__(
        self,
        data: Path,
        workers: int = 1,
        environment: Mapping[str, str] = MappingProxyType({}),
        schedulers: int = 1,
    ) -> None:
        self.data = data
        self.arguments: tuple[str, ...] = (
            "--workers",
            str(workers),
            "--schedulers",
            str(schedulers),
        )
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("FASTVIDEO_")
        } | {"FASTVIDEO_DATA": str(data), "OMP_NUM_THREADS": "1", "COLUMNS": "120", **environment}

    def up(self) -> None:
        """Start it; a start that fails shows what the command said."""
        arguments = ("up", "--detach", "--data", str(self.data), *self.arguments)
        outcome = self.run(*arguments, timeout_s=START_S_MAX)
        if outcome.code != 0:
            raise RuntimeError(f"fastvideo up failed:\n{outcome.out}\n{outcome.err}")

    def down(self) -> None:
        """Stop it; nothing happens when it does not run."""
        self.run("down", "--data", str(self.data), timeout_s=START_S_MAX)

    def run(
        self, *arguments: str, timeout_s: float = COMMAND_S_MAX, stdin: str | None = None
    ) -> Outcome:
        """Run the command line to its end."""
        done = subprocess.run(
            [PROGRAM, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=self.environment,
            input=stdin,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start the command line and leave it running; the test ends it."""
        return subprocess.Popen(
            [PROGRAM, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    def generate(self, prompt: str, *arguments: str) -> Any:
        """The JSON of a generation that completes."""
        outcome = self.run("generate", prompt, "--json", *arguments)
        assert outcome.code == 0, outcome.err
        return outcome.json

    def watch(self, request_id: str) -> list[Any]:
        """All events of a request that ends, as the watch gives them."""
        outcome = self.run("request", "watch", request_id, "--json")
        assert outcome.code == 0, outcome.err
        return [json.loads(line) for line in outcome.out.splitlines()]

    def status(self) -> Any:
        """`fastvideo status --json`."""
        return self.run("status", "--json").json

    def pid(self, name: str, timeout_s: float = 60.0) -> int:
        """The process of a part, once it is ready."""

        def ask() -> int | None:
            for part in self.status()["parts"]:
                if part["name"] == name and part["state"] == "ready":
                    return int(part["pid"])
            return None

        return poll(f"{name} is ready", ask, timeout_s)

    def address(self, name: str) -> str:
        """Where a part listens, which stays the same over restarts."""
        port = json.loads(DataFolder(self.data).ports.read_text())[name]
        return f"127.0.0.1:{port}"

    @property
    def gateway(self) -> str:
        """The gateway's address."""
        return self.address("gateway")

    @property
    def postgres_dsn(self) -> str:
        """The stack's database."""
        folder = DataFolder(self.data)
        credentials = load_credentials(folder.credentials)
        assert credentials is not None
        port = json.loads(folder.ports.read_text())["postgres"]
        return postgres_dsn(APP, credentials.postgres_app, port)

    async def log(self, stream_prefix: str) -> list[Event]:
        """The events of all streams with that prefix, in the order of the log."""
        store = await PostgresEventStore.open(self.postgres_dsn, connections_max=1)
        events: list[Event] = []
        try:
            for partition in range(store.partition_count):
                offset = 0
                while page := await store.read_partition(partition, offset, READ_MAX):
                    offset = page[-1].offset
                    events += [
                        event_of(stored)
                        for stored in page
                        if stored.stream_id.startswith(stream_prefix)
                    ]
        finally:
            await store.close()
        return events


@contextmanager
def running_stack(
    workers: int = 1,
    environment: Mapping[str, str] = MappingProxyType({}),
    schedulers: int = 1,
    options: Sequence[str] = (),
) -> Iterator[Stack]:
    """A stack in a temporary folder; stopped and deleted at the end, whatever happened."""
    data = Path(tempfile.mkdtemp(prefix="fastvideo-e2e-"))
    # As root, Postgres runs as a user of its own and must pass through.
    data.chmod(0o711)
    stack = Stack(data / "data", workers, environment, schedulers)
    stack.arguments = (*stack.arguments, *options)
    try:
        stack.up()
        yield stack
    finally:
        stack.down()
        shutil.rmtree(data, ignore_errors=True)


def poll(what: str, ask: Callable[[], T | None], timeout_s: float = 60.0) -> T:
    """The first answer that is not None; AssertionError when none comes in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        answer = ask()
        if answer is not None:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {timeout_s:g} s")
