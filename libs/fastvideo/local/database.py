"""The database of a stack that runs, for commands of the person who runs it."""

import json
import os
from pathlib import Path

from fastvideo.errors import Unavailable
from fastvideo.local.config import options_for
from fastvideo.local.credentials import load_credentials
from fastvideo.local.launch import find_running
from fastvideo.local.servers import APP, postgres_dsn


def running_database(data: Path | None = None) -> str:
    """The `postgresql://` URL of the local stack's database, with its password.

    Raises Unavailable when no local stack is ready, or when its database is not its own.
    """
    running = find_running(data)
    if running is None:
        raise Unavailable(
            "no local stack is running; start one with `fastvideo up`, "
            "or name the database with --postgres-url URL",
            reason="NO_STACK",
        )
    folder = options_for(running.data, os.environ).folder
    credentials = load_credentials(folder.credentials)
    port = json.loads(folder.ports.read_text()).get("postgres")
    if credentials is None or port is None:
        raise Unavailable(
            "the local stack does not run Postgres itself; name it with --postgres-url URL",
            reason="NO_DATABASE",
        )
    return postgres_dsn(APP, credentials.postgres_app, port)


def running_archive(data: Path | None = None) -> str:
    """Where the local stack's archives are. Raises Unavailable when no local stack is ready."""
    running = find_running(data)
    if running is None:
        raise Unavailable(
            "no local stack is running; name the archive with --archive-url URL", reason="NO_STACK"
        )
    return options_for(running.data, os.environ).folder.archive.as_uri()
