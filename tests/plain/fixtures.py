"""Fixtures for tests that run without pytest: a few of pytest's, and those of the suite itself."""

import contextlib
import inspect
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from tests.plain.stand_in import FIXTURE, Skipped


class Captured(NamedTuple):
    """What was written since the last look."""

    out: str
    err: str


class Capture:
    """Standard output and error of a test."""

    def __init__(self) -> None:
        self.out = io.StringIO()
        self.err = io.StringIO()

    def readouterr(self) -> Captured:
        """What was written since the last call."""
        found = Captured(self.out.getvalue(), self.err.getvalue())
        for stream in (self.out, self.err):
            stream.seek(0)
            stream.truncate()
        return found


def _tmp_path(stack: contextlib.ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory()))


def _capsys(stack: contextlib.ExitStack) -> Capture:
    capture = Capture()
    stack.enter_context(contextlib.redirect_stdout(capture.out))
    stack.enter_context(contextlib.redirect_stderr(capture.err))
    return capture


BUILT_IN: Final[Mapping[str, Callable[[contextlib.ExitStack], Any]]] = {
    "tmp_path": _tmp_path,
    "capsys": _capsys,
}


def declared(modules: list[ModuleType]) -> dict[str, Callable[..., Any]]:
    """Fixtures of modules by name; a later module's hides an earlier one's."""
    return {
        getattr(value, FIXTURE): value
        for module in modules
        for value in vars(module).values()
        if inspect.isroutine(value) and hasattr(value, FIXTURE)
    }


def arguments(
    function: Callable[..., Any],
    given: Mapping[str, Any],
    fixtures: Mapping[str, Callable[..., Any]],
    stack: contextlib.ExitStack,
) -> dict[str, Any]:
    """The arguments of a call; `stack` ends what fixtures began.

    Raises Skipped for a fixture that only pytest has.
    """
    made: dict[str, Any] = {}
    return _arguments(function, given, fixtures, stack, made)


def _arguments(
    function: Callable[..., Any],
    given: Mapping[str, Any],
    fixtures: Mapping[str, Callable[..., Any]],
    stack: contextlib.ExitStack,
    made: dict[str, Any],
) -> dict[str, Any]:
    found = dict(given)
    for name, parameter in inspect.signature(function).parameters.items():
        if name in found or parameter.default is not parameter.empty or name == "self":
            continue
        if name not in made:
            made[name] = _make(name, fixtures, stack, made)
        found[name] = made[name]
    return found


def _make(
    name: str,
    fixtures: Mapping[str, Callable[..., Any]],
    stack: contextlib.ExitStack,
    made: dict[str, Any],
) -> Any:
    if name in fixtures:
        fixture = fixtures[name]
        values = _arguments(fixture, {}, fixtures, stack, made)
        if inspect.iscoroutinefunction(fixture) or inspect.isasyncgenfunction(fixture):
            raise Skipped(f"need the asynchronous fixture {name}")
        if inspect.isgeneratorfunction(fixture):
            return stack.enter_context(contextlib.contextmanager(fixture)(**values))
        return fixture(**values)
    if name in BUILT_IN:
        return BUILT_IN[name](stack)
    raise Skipped(f"need the fixture {name}")


def conftests(folder: Path, root: Path) -> Iterator[Path]:
    """The conftest files that count for a folder, from the root downwards."""
    for parent in reversed([folder, *folder.parents]):
        path = parent / "conftest.py"
        # The suite's own is for pytest: it declares plugins.
        if parent.is_relative_to(root) and parent != root and path.is_file():
            yield path
