"""The folder that holds everything a stack keeps: data, logs, ports, passwords, state.

stack.lock         held by the running supervisor; its content is that supervisor's pid
stack.json         parts, processes, addresses (state.py)
ports.json         ports, chosen once (ports.py)
credentials.json   passwords (credentials.py)
master.key         the key of tenants' keys (credentials.py)
operator.key       the operator's key of a stack that asks for keys (operator_key.py)
config/            configuration written for the servers at each start
logs/              <part>.log and <part>.log.1
traces/            spans of every service, in files that are replaced when they are full
postgres/ nats/ redis/ blobs/ archive/    the data itself
checkpoints/       the default place for checkpoints that users bring
runtime/           a copy of Postgres, only where its own user cannot read the installed one
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastvideo.local.errors import DataUnreachable

# Postgres runs as a user of its own when we are root, and has to pass through to its data.
_MODE_ROOT = 0o711
_MODE_USER = 0o700
_MODE_PRIVATE = 0o700


@dataclass(frozen=True)
class DataFolder:
    """Names of the things inside a data folder; `root` is absolute."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / "stack.lock"

    @property
    def state(self) -> Path:
        return self.root / "stack.json"

    @property
    def ports(self) -> Path:
        return self.root / "ports.json"

    @property
    def credentials(self) -> Path:
        return self.root / "credentials.json"

    @property
    def master_key(self) -> Path:
        return self.root / "master.key"

    @property
    def operator_key(self) -> Path:
        return self.root / "operator.key"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def traces(self) -> Path:
        return self.root / "traces"

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def nats(self) -> Path:
        return self.root / "nats"

    @property
    def redis(self) -> Path:
        return self.root / "redis"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    @property
    def archive(self) -> Path:
        return self.root / "archive"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def runtime(self) -> Path:
        return self.root / "runtime"

    def log(self, part: str) -> Path:
        """Where a part's output goes."""
        return self.logs / f"{part}.log"

    def prepare(self) -> None:
        """Make the folder and its sub-folders; modes of a folder that exists are left alone.

        Raises DataUnreachable where we may not write.
        """
        try:
            _make(self.root, _MODE_ROOT if os.geteuid() == 0 else _MODE_USER)
            for folder in self._private_folders():
                _make(folder, _MODE_PRIVATE)
        except OSError as error:
            raise DataUnreachable(
                f"the data folder {self.root} cannot be made: {error.strerror}"
                f" ({error.filename}); give another one with --data DIR",
                subject=str(self.root),
            ) from error
        if not os.access(self.root, os.R_OK | os.W_OK | os.X_OK):
            raise DataUnreachable(
                f"the data folder {self.root} belongs to another user and is not writable;"
                " give another one with --data DIR",
                subject=str(self.root),
            )

    def _private_folders(self) -> tuple[Path, ...]:
        servers = (self.config, self.logs, self.traces, self.nats, self.redis)
        return (*servers, self.blobs, self.archive, self.checkpoints)


def default_data_folder(environment: Mapping[str, str]) -> Path:
    """FASTVIDEO_DATA, else /var/lib/fastvideo for root, else XDG's data home.

    Root's home is usually closed to others, Postgres' user among them, hence /var/lib.
    """
    if given := environment.get("FASTVIDEO_DATA"):
        return Path(given)
    if os.geteuid() == 0:
        return Path("/var/lib/fastvideo")
    if data_home := environment.get("XDG_DATA_HOME"):
        return Path(data_home) / "fastvideo"
    return Path.home() / ".local" / "share" / "fastvideo"


def require_reach(user: str, target: Path) -> None:
    """Raise DataUnreachable, naming the closed folder, unless `user` can get into `target`.

    Asks the kernel as that user, so access lists and mounts count as well. Only root can ask.
    """
    if can_enter(user, target):
        return
    for folder in (*reversed(target.parents), target):
        if not can_enter(user, folder):
            raise DataUnreachable(
                f"Postgres runs as the user {user!r}, which cannot enter {folder};"
                f" allow it (chmod o+x {folder}) or give another folder with --data DIR",
                subject=str(folder),
                attributes={"user": user},
            )


def can_enter(user: str, folder: Path) -> bool:
    """Whether the system user may pass through the folder."""
    return can_run(user, [shutil.which("test") or "/usr/bin/test", "-x", str(folder)])


def can_run(user: str, argv: list[str]) -> bool:
    """Whether the system user can run the command and it succeeds."""
    try:
        done = subprocess.run(
            argv,
            user=user,
            group=_group_of(user),
            extra_groups=[],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=10,
        )
    except (PermissionError, FileNotFoundError):
        return False
    return done.returncode == 0


def _group_of(user: str) -> int:
    import pwd

    return pwd.getpwnam(user).pw_gid


def _make(folder: Path, mode: int) -> None:
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(mode)
