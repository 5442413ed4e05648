"""Runs the pure tests with Python alone: `python -S tests/run.py [FOLDER or FILE...]`.

No pytest, and no other package. A test that needs a package that is not there, or a fixture of
pytest's that has no counterpart here, is counted as not run, with its reason. Ends with 1 when a
test failed, and when none ran.
"""

import argparse
import ast
import asyncio
import contextlib
import inspect
import io
import json
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS: Final = ROOT / "tests"
# The first looks at the repository with its tools, the second starts the installed program.
LEFT_OUT: Final = ("house", "cli")

# Not by installation: there may be none.
sys.path[:0] = [str(ROOT), str(ROOT / "libs"), *map(str, (ROOT / "services").glob("*"))]
# Whatever other package has that name.
sys.modules["tests"] = ModuleType("tests")
sys.modules["tests"].__path__ = [str(TESTS)]

from tests.plain import fixtures, stand_in  # noqa: E402 - the path had to be set


@dataclass(slots=True)
class Report:
    """What became of the tests."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    # Reason to how many.
    not_run: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        """One line for people."""
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.not_run.most_common())
        left = sum(self.not_run.values())
        shown = f"; {left} not run: {reasons}" if left else ""
        return f"{self.passed} passed, {len(self.failed)} failed{shown}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests of the folders and files that are named, or all pure ones."""
    parser = argparse.ArgumentParser(prog="python -S tests/run.py", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="folders and files; tests/unit if none")
    parser.add_argument("--json", action="store_true", help="print one JSON object, no text")
    options = parser.parse_args(arguments)
    sys.modules["pytest"] = stand_in.module()
    report = Report()
    for path in _files([path.resolve() for path in options.paths] or [TESTS / "unit"]):
        _run_file(path, report, sys.stderr if options.json else sys.stdout)
    if options.json:
        shown = {"passed": report.passed, "failed": report.failed, "not_run": report.not_run}
        sys.stdout.write(json.dumps(shown) + "\n")
    else:
        sys.stdout.write(report.summary() + "\n")
    return 1 if report.failed or not report.passed else 0


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_file():
            yield path
        else:
            for found in sorted(path.rglob("test_*.py")):
                if not set(found.relative_to(path).parts).intersection(LEFT_OUT):
                    yield found


def _run_file(path: Path, report: Report, out: Any) -> None:
    try:
        module = _load(path)
        shared = [_load(file) for file in fixtures.conftests(path.parent, TESTS)]
    except (ModuleNotFoundError, AttributeError, NotImplementedError) as error:
        reason = _missing(error)
        if reason is None:
            _tell(str(path), report, out)
        else:
            report.not_run[reason] += _declared_tests(path)
        return
    except Exception:  # noqa: BLE001 - whatever a test's module raises is its failure
        _tell(str(path), report, out)
        return
    known = fixtures.declared([*shared, module])
    for name, function in _tests(module):
        for case in stand_in.cases(function):
            label = f"{_shown(path)}::{name}"
            label += f"[{', '.join(map(str, case.values()))}]" if case else ""
            _run_test(label, function, case, known, report, out)


def _run_test(
    label: str,
    function: Callable[..., Any],
    case: Mapping[str, Any],
    known: Mapping[str, Callable[..., Any]],
    report: Report,
    out: Any,
) -> None:
    if any(mark.name == "gpu" for mark in getattr(function, stand_in.MARKS, ())):
        report.not_run["need an accelerator"] += 1
        return
    written = io.StringIO()
    try:
        with contextlib.ExitStack() as stack, warnings.catch_warnings():
            warnings.simplefilter("error")
            stack.enter_context(contextlib.redirect_stdout(written))
            stack.enter_context(contextlib.redirect_stderr(written))
            values = fixtures.arguments(function, case, known, stack)
            if inspect.iscoroutinefunction(function):
                asyncio.run(function(**values))
            else:
                function(**values)
    except stand_in.Skipped as skipped:
        report.not_run[str(skipped)] += 1
    except Exception as error:  # noqa: BLE001 - a test fails by whatever it raises
        reason = _missing(error) if isinstance(error, ModuleNotFoundError) else None
        if reason is None:
            _tell(label, report, out, written.getvalue())
        else:
            report.not_run[reason] += 1
    else:
        report.passed += 1


def _tests(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The tests of a module in their order; methods come bound to an object of their own."""
    for name, value in list(vars(module).items()):
        if name.startswith("test_") and inspect.isfunction(value):
            yield name, value
        elif name.startswith("Test") and inspect.isclass(value):
            for method in vars(value):
                if method.startswith("test_"):
                    yield f"{name}.{method}", getattr(value(), method)


def _load(path: Path) -> ModuleType:
    """The module of a file of tests, wherever it lies."""
    if path.is_relative_to(ROOT):
        return import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    sys.path.insert(0, str(path.parent))
    try:
        return import_module(path.stem)
    finally:
        sys.path.remove(str(path.parent))


def _missing(error: Exception) -> str | None:
    """What is not there and need not be; None when the tests or the code are at fault."""
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        own = package in ("fastvideo", "tests") or package.startswith("fastvideo_")
        return None if own else f"need {package}"
    if isinstance(error, AttributeError) and error.obj is sys.modules["pytest"]:
        return f"need pytest.{error.name}"
    return f"need {error}" if isinstance(error, NotImplementedError) else None


def _declared_tests(path: Path) -> int:
    """How many tests a file has that could not be imported; a parametrized one counts once."""
    return sum(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )


def _tell(label: str, report: Report, out: Any, written: str = "") -> None:
    """Report the exception that is being handled as a failure, and what the test had written."""
    report.failed.append(label)
    out.write(f"FAILED {label}\n{traceback.format_exc()}{written}\n")


def _shown(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


if __name__ == "__main__":
    sys.exit(main())
