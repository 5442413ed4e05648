"""The domain decides without IO, clock or randomness; what of it is a shell is named here."""

import ast
from pathlib import Path

import pytest

ROOMS = ("artifacts", "deployment", "model", "program", "requests", "scheduling", "sessions")
LIBRARY = Path(__file__).resolve().parents[3] / "libs" / "fastvideo"
IMPURE = {"asyncio", "os", "random", "secrets", "socket", "subprocess", "threading", "time", "uuid"}
IMPURE |= {"fastvideo.clock.SystemClock", "fastvideo.ids.new_id", "fastvideo.telemetry"}
# What several services share around the decisions; ARCHITECTURE.md has the list, too.
SHELLS = {
    "requests/reading.py",
    "requests/standing.py",
    "sessions/reading.py",
    "sessions/recording.py",
    "sessions/turns.py",
}


def impurities(text: str) -> set[str]:
    """What a source has that a decision may not use: such imports, and waiting."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.AsyncFunctionDef):
            found.add("async")
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {one for one in IMPURE for name in names if f"{name}.".startswith(f"{one}.")}
    return found


def test_decisions_use_nothing_that_is_not_in_their_input() -> None:
    found = {
        path.relative_to(LIBRARY).as_posix(): impurities(path.read_text())
        for room in ROOMS
        for path in (LIBRARY / room).rglob("*.py")
    }
    assert {name for name, impure in found.items() if impure} == SHELLS, found


def test_the_list_of_shells_is_that_of_the_architecture() -> None:
    told = (LIBRARY.parents[1] / "ARCHITECTURE.md").read_text()
    for path in SHELLS:
        assert f"`{path.removesuffix('.py').replace('/', '.')}`" in told


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from asyncio import sleep",
        "from fastvideo.ids import new_id",
        "from fastvideo.telemetry.tracing import span",
        "async def wait(): ...",
    ],
)
def test_what_is_not_pure_would_be_found(text: str) -> None:
    assert impurities(text)
