"""The first thing that a new user types."""

import os
import pty
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.media_files import read_video
from tests.e2e.stack import PROGRAM, START_S_MAX, Stack

PROMPT = "a red three moving left"


@pytest.fixture
def fresh() -> Iterator[Stack]:
    """A data folder in which nothing runs yet; what a test starts there is stopped."""
    folder = Path(tempfile.mkdtemp(prefix="fastvideo-first-"))
    folder.chmod(0o711)
    stack = Stack(folder / "data")
    try:
        yield stack
    finally:
        stack.down()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.row("API-06")
@pytest.mark.timeout(400)
def test_generate_starts_the_stack_by_itself_and_leaves_it_running(
    fresh: Stack, tmp_path: Path
) -> None:
    path = tmp_path / "out.mp4"
    outcome = fresh.run("generate", PROMPT, "-o", str(path), timeout_s=START_S_MAX)
    assert outcome.code == 0, outcome.err
    assert "no local stack is running; starting one in the background" in outcome.err
    assert len(read_video(path).frames) == 9
    assert fresh.status()["ready"]
    again = fresh.run("generate", PROMPT, "-o", str(path), "--steps", "2")
    assert again.code == 0
    assert "starting" not in again.err


def test_reading_commands_do_not_start_a_stack(fresh: Stack) -> None:
    for arguments in (("models",), ("request", "list"), ("session", "list")):
        outcome = fresh.run(*arguments)
        assert outcome.code == 1
        [line] = outcome.err.splitlines()
        assert "fastvideo up" in line
        assert "--gateway" in line
    assert not fresh.data.exists()


def test_on_a_terminal_there_is_a_bar(stack: Stack, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    try:
        process = subprocess.Popen(
            [PROGRAM, "generate", PROMPT, "--steps", "10", "-o", str(tmp_path / "out.mp4")],
            stdout=subprocess.DEVNULL,
            stderr=follower,
            env=stack.environment | {"TERM": "xterm"},
        )
        os.close(follower)
        shown = _read_all(leader)
        assert process.wait(60) == 0
    finally:
        os.close(leader)
    assert re.search(r"denoise \d+/10", shown)
    assert "━" in shown


def _read_all(terminal: int) -> str:
    """All that is written to the terminal until the other side closes it."""
    data = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # Linux' way to say that the other side is closed.
            break
        if not piece:
            break
        data += piece
    return data.decode(errors="replace")
