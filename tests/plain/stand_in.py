"""What pure tests use of pytest, on the standard library alone.

It takes pytest's place while `tests/run.py` runs. What is not here, a test may not use if it is
to run without pytest; such a test is counted as not run, never passed over in silence.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType, TracebackType
from typing import Any, Final, NoReturn

MARKS: Final = "plain_marks"
FIXTURE: Final = "plain_fixture"


class Skipped(Exception):
    """A test cannot run here; the message says why."""


class Failed(AssertionError):
    """A test asked for what did not come."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark of a test; as a decorator it adds itself."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and inspect.isroutine(args[0]) | inspect.isclass(args[0]):
            target = args[0]
            setattr(target, MARKS, (*getattr(target, MARKS, ()), self))
            return target
        return Mark(self.name, args, kwargs)


class _Marks:
    def __getattr__(self, name: str) -> Mark:
        return Mark(name)


@dataclass(frozen=True, slots=True)
class Case:
    """The values of one parametrized case."""

    values: tuple[Any, ...]
    marks: tuple[Mark, ...] = ()


class Raises:
    """The context of `pytest.raises`; `value` is what was raised."""

    value: Any

    def __init__(self, expected: Any, match: str | None) -> None:
        self._expected = expected
        self._match = match

    def __enter__(self) -> "Raises":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if value is None:
            raise Failed(f"{self._expected} was not raised")
        if not isinstance(value, self._expected):
            return False
        if self._match is not None and re.search(self._match, str(value)) is None:
            raise Failed(f"{value!s} does not match {self._match!r}")
        self.value = value
        return True


class Approx:
    """Equal within `rel` of what is expected, or within `abs`."""

    def __init__(self, expected: Any, rel: float, absolute: float) -> None:
        self._expected = expected
        self._rel = rel
        self._absolute = absolute

    def __eq__(self, found: object) -> bool:
        return self._equal(self._expected, found)

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"approx({self._expected!r})"

    def _equal(self, wanted: Any, found: Any) -> bool:
        if isinstance(wanted, Mapping):
            return wanted.keys() == found.keys() and all(
                self._equal(wanted[key], found[key]) for key in wanted
            )
        if isinstance(wanted, Sequence) and not isinstance(wanted, str):
            return len(wanted) == len(found) and all(map(self._equal, wanted, found))
        return math.isclose(wanted, found, rel_tol=self._rel, abs_tol=self._absolute)


class _Annotation:
    """Names fixtures in annotations; whether there is such a fixture is another matter."""

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


def raises(expected: Any, *, match: str | None = None) -> Raises:
    """A block that must raise."""
    return Raises(expected, match)


def approx(expected: Any, rel: float = 1e-6, abs: float = 1e-12) -> Approx:
    """A number, sequence or mapping of numbers that is met approximately."""
    return Approx(expected, rel, abs)


def param(*values: Any, marks: Any = (), id: str | None = None) -> Case:
    """A parametrized case with marks of its own."""
    return Case(values, tuple(marks) if isinstance(marks, list | tuple) else (marks,))


def fixture(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """A function that gives a value to tests that name it."""
    if options.get("autouse") or options.get("params"):
        raise NotImplementedError("fixtures that are used unasked, or have parameters")

    def declare(made: Callable[..., Any]) -> Callable[..., Any]:
        setattr(made, FIXTURE, options.get("name") or made.__name__)
        return made

    return declare if function is None else declare(function)


def skip(reason: str = "") -> NoReturn:
    """End the test: it cannot run here."""
    raise Skipped(reason)


def fail(reason: str = "") -> NoReturn:
    """End the test: it failed."""
    raise Failed(reason)


def importorskip(name: str) -> Any:
    """A module, if it is installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise Skipped(f"need {name}") from None


def cases(function: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """The arguments of every parametrized case of a test; one empty case when it has none."""
    found: list[dict[str, Any]] = [{}]
    for mark in getattr(function, MARKS, ()):
        if mark.name == "parametrize":
            names, values = mark.args[0], mark.args[1]
            if isinstance(names, str):
                names = [name.strip() for name in names.split(",")]
            found = [before | given for given in _given(names, values) for before in found]
    yield from found


def _given(names: Sequence[str], values: Any) -> Iterator[dict[str, Any]]:
    for value in values:
        if isinstance(value, Case):
            row = value.values
        else:
            row = (value,) if len(names) == 1 else tuple(value)
        yield dict(zip(names, row, strict=True))


def module() -> ModuleType:
    """A module with pytest's names."""
    made = ModuleType("pytest")
    made.mark = _Marks()  # type: ignore[attr-defined]
    for name in ("raises", "approx", "param", "fixture", "skip", "fail", "importorskip"):
        setattr(made, name, globals()[name])
    for name in (
        "CaptureFixture",
        "FixtureRequest",
        "LogCaptureFixture",
        "MonkeyPatch",
        "TempPathFactory",
    ):
        setattr(made, name, _Annotation)
    return made
