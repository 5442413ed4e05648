"""Make an empty Postgres data directory: all of it, or none of it.

    python -m fastvideo.local.initdb INITDB TARGET USER

A process of its own, so that it runs beside the start of other parts and its output has a log. The
superuser's password comes in FASTVIDEO_SUPERUSER_PASSWORD. initdb writes into TARGET.new, which
takes its final name at the end; what an interrupted run left behind is removed first.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from fastvideo.local import child
from fastvideo.local.system_user import own


def make_data(initdb: str, target: Path, user: str | None, password: str) -> None:
    """Run initdb as `user` (None: as we are). Raises CalledProcessError when it fails."""
    fresh = target.with_name(f"{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    own(target.parent, user)
    own(fresh, user)
    password_file = target.parent / "initial-password"
    try:
        password_file.touch(mode=0o600)
        password_file.write_text(password)
        if user is not None:
            shutil.chown(password_file, user)
        subprocess.run(
            [
                *(sys.executable, "-I", "-S", child.__file__),
                *(str(os.getpid()), str(int(signal.SIGKILL)), user or "-"),
                *(initdb, "-D", str(fresh), "-U", "postgres"),
                *("--auth=scram-sha-256", f"--pwfile={password_file}"),
                *("--encoding=UTF8", "--locale=C", "--data-checksums"),
            ],
            check=True,
            cwd=target.parent,
        )
    finally:
        password_file.unlink(missing_ok=True)
    fresh.rename(target)


def main(arguments: list[str]) -> None:
    initdb, target, user = arguments
    password = os.environ["FASTVIDEO_SUPERUSER_PASSWORD"]
    make_data(initdb, Path(target), None if user == "-" else user, password)


if __name__ == "__main__":
    main(sys.argv[1:])
