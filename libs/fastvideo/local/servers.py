"""Postgres, NATS and Redis as parts of a plan, and the configuration files that they read.

Passwords go into files of mode 0600 or into environments, never onto a command line. All three
listen on loopback only and ask for a password.
"""

import signal
import sys
from pathlib import Path

from fastvideo.errors import InvalidField
from fastvideo.local.credentials import Credentials
from fastvideo.local.folder import DataFolder
from fastvideo.local.plan import ProcessSpec
from fastvideo.local.ports import HOST
from fastvideo.local.probes import Exits, NatsAnswers, PostgresAnswers, RedisAnswers
from fastvideo.local.programs import PostgresPrograms
from fastvideo.local.state import write_private

GROUP = "servers"
DATABASE = "fastvideo"
SUPERUSER = "postgres"
# The role that the event log's migration grants its rights to: it cannot change an event.
APP = "fastvideo_app"

# Small, and safe: what is committed survives a power cut.
_POSTGRES_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "password_encryption": "scram-sha-256",
    "jit": "off",
    "max_wal_size": "1GB",
    "checkpoint_completion_target": "0.9",
    "autovacuum_max_workers": "2",
    "max_parallel_workers": "2",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

_NATS_CONFIG = """\
# Written by `fastvideo up` at each start.
server_name: fastvideo
listen: {host}:{port}
max_payload: 8MB
jetstream {{
  store_dir: {store}
  max_memory_store: 64MB
  max_file_store: 16GB
}}
authorization {{
  user: {user}
  password: "{password}"
}}
"""

# Redis is a cache: everything in it can be made again, so nothing is written to disk.
_REDIS_CONFIG = """\
# Written by `fastvideo up` at each start.
bind {host}
port {port}
requirepass {password}
dir "{folder}"
daemonize no
save ""
appendonly no
maxmemory 256mb
maxmemory-policy allkeys-lru
"""

_NATS_USER = "fastvideo"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENVIRONMENT = {"PATH": _PATH, "LANG": "C", "LC_ALL": "C", "TZ": "UTC"}


def postgres_parts(
    programs: PostgresPrograms,
    folder: DataFolder,
    port: int,
    user: str | None,
    credentials: Credentials,
) -> tuple[ProcessSpec, ...]:
    """Postgres, run directly so that it dies with us; before it initdb, when there is no data."""
    data = postgres_data(folder)
    initdb = ProcessSpec(
        name="initdb",
        group=GROUP,
        argv=(
            *module_argv("fastvideo.local.initdb"),
            str(programs.initdb),
            str(data),
            user or "-",
        ),
        environment={
            **_ENVIRONMENT,
            # Unset, so that Python reads paths of its environment as UTF-8 where LANG is "C".
            "LC_ALL": "",
            "PYTHONPATH": ":".join(filter(None, sys.path)),
            "FASTVIDEO_SUPERUSER_PASSWORD": credentials.postgres_superuser,
        },
        cwd=folder.root,
        ready=Exits(),
        once=True,
        start_timeout_s=120.0,
    )
    settings = {**_POSTGRES_SETTINGS, "port": str(port)}
    if programs.major >= 18:
        # The io workers of 18 are three more processes that this size has no use for.
        settings["io_method"] = "sync"
    fresh = not data.exists()
    postgres = ProcessSpec(
        name="postgres",
        group=GROUP,
        argv=(
            str(programs.postgres),
            "-D",
            str(data),
            *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
        ),
        environment=_ENVIRONMENT,
        cwd=folder.postgres,
        ready=PostgresAnswers(port),
        needs=("initdb",) if fresh else (),
        user=user,
        # "Fast" shutdown on request; "immediate" when the supervisor is gone, it recovers from WAL.
        stop_signal=signal.SIGINT,
        orphan_signal=signal.SIGQUIT,
        stop_grace_s=20.0,
        # Recovery after a crash replays the write-ahead log first.
        start_timeout_s=120.0,
        address=f"{HOST}:{port}",
    )
    return (initdb, postgres) if fresh else (postgres,)


def schema_part(
    folder: DataFolder, needs: tuple[str, ...], environment: dict[str, str]
) -> ProcessSpec:
    """The step that makes roles and database where they are absent and brings tables up to date."""
    return ProcessSpec(
        name="schema",
        group="schema",
        argv=module_argv("fastvideo.local.schema"),
        environment=environment,
        cwd=folder.root,
        ready=Exits(),
        needs=needs,
        once=True,
        start_timeout_s=300.0,
    )


def nats_part(
    program: Path, folder: DataFolder, port: int, credentials: Credentials
) -> ProcessSpec:
    """NATS with JetStream on disk."""
    config = folder.config / "nats.conf"
    write_private(
        config,
        _NATS_CONFIG.format(
            host=HOST,
            port=port,
            store=_quoted(folder.nats),
            user=_NATS_USER,
            password=credentials.nats,
        ),
    )
    return ProcessSpec(
        name="nats",
        group=GROUP,
        argv=(str(program), "-c", str(config)),
        environment=_ENVIRONMENT,
        cwd=folder.root,
        ready=NatsAnswers(port),
        address=f"{HOST}:{port}",
    )


def redis_part(
    program: Path, folder: DataFolder, port: int, credentials: Credentials
) -> ProcessSpec:
    """Redis as a cache in memory."""
    config = folder.config / "redis.conf"
    write_private(
        config,
        _REDIS_CONFIG.format(host=HOST, port=port, folder=folder.redis, password=credentials.redis),
    )
    return ProcessSpec(
        name="redis",
        group=GROUP,
        argv=(str(program), str(config)),
        environment=_ENVIRONMENT,
        cwd=folder.root,
        ready=RedisAnswers(port),
        address=f"{HOST}:{port}",
    )


def postgres_data(folder: DataFolder) -> Path:
    """Postgres' data directory proper; it exists only once initdb has ended well."""
    return folder.postgres / "data"


def postgres_dsn(role: str, password: str, port: int, database: str = DATABASE) -> str:
    """A connection URL; it holds the password."""
    return f"postgresql://{role}:{password}@{HOST}:{port}/{database}"


def nats_url(port: int, credentials: Credentials) -> str:
    """The URL of NATS; it holds the password."""
    return f"nats://{_NATS_USER}:{credentials.nats}@{HOST}:{port}"


def redis_url(port: int, credentials: Credentials) -> str:
    """The URL of Redis; it holds the password."""
    return f"redis://:{credentials.redis}@{HOST}:{port}/0"


def module_argv(module: str) -> tuple[str, ...]:
    """Run a module with this interpreter; the working folder is kept off the import path."""
    return (sys.executable, "-P", "-m", module)


def _quoted(path: Path) -> str:
    if '"' in str(path) or "\n" in str(path):
        raise InvalidField("--data", str(path), "a path without quotes and line ends")
    return f'"{path}"'
