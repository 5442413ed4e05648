"""The pure tests run with Python alone, and what cannot is counted."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

MIXED = """
import asyncio
import warnings
from pathlib import Path

import pytest

@pytest.fixture
def number():
    yield 2

@pytest.fixture
def doubled(number):
    return 2 * number

def test_passes(doubled: int, tmp_path: Path) -> None:
    assert tmp_path.is_dir()
    assert doubled == pytest.approx(4.0)

@pytest.mark.parametrize(("left", "right"), [(1, 1), pytest.param(2, 2, id="two"), (3, 4)])
@pytest.mark.row("X")
def test_three_cases_of_which_one_fails(left: int, right: int) -> None:
    assert left == right

class TestClass:
    def test_in_a_class(self, capsys: pytest.CaptureFixture[str]) -> None:
        print("hello")
        assert capsys.readouterr().out == "hello\\n"

async def test_asynchronous() -> None:
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="^b"):
        raise ValueError("bad")

async def test_asynchronous_that_fails() -> None:
    assert False

def test_what_does_not_raise_fails() -> None:
    with pytest.raises(ValueError):
        pass

def test_another_error_fails() -> None:
    with pytest.raises(ValueError, match="good"):
        raise ValueError("bad")

def test_a_warning_fails() -> None:
    warnings.warn("old")

@pytest.mark.gpu
def test_on_an_accelerator() -> None:
    assert False

def test_skips() -> None:
    pytest.skip("it rains")

def test_with_more_of_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert False

def test_with_a_package_that_is_not_there() -> None:
    import nothing_of_this_name
"""


def plain(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit status and report of the runner, without any installed package."""
    done = subprocess.run(
        [sys.executable, "-S", "tests/run.py", "--json", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report


@pytest.mark.row("TST-14")
def test_the_pure_suites_pass_with_python_alone() -> None:
    status, report = plain()
    assert report["failed"] == []
    assert status == 0
    # The core and the domain; what needs a package says which.
    assert report["passed"] >= 300
    assert all(reason.startswith("need") for reason in report["not_run"])
    assert "need pytest" not in report["not_run"]


@pytest.mark.row("TST-14")
def test_it_tells_what_passed_what_failed_and_what_did_not_run(tmp_path: Path) -> None:
    path = tmp_path / "test_mixed.py"
    path.write_text(MIXED)

    status, report = plain(str(path))

    assert status == 1
    assert report["passed"] == 5
    assert [label.partition("::")[2] for label in report["failed"]] == [
        "test_three_cases_of_which_one_fails[3, 4]",
        "test_asynchronous_that_fails",
        "test_what_does_not_raise_fails",
        "test_another_error_fails",
        "test_a_warning_fails",
    ]
    assert report["not_run"] == {
        "need an accelerator": 1,
        "it rains": 1,
        "need the fixture monkeypatch": 1,
        "need nothing_of_this_name": 1,
    }


def test_a_file_that_cannot_be_read_is_a_failure_or_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import fastvideo.no_such_room\n")
    (tmp_path / "test_needy.py").write_text(
        "import nothing_of_this_name\ndef test_a(): ...\ndef test_b(): ...\n"
    )

    status, report = plain(str(tmp_path))

    assert status == 1
    assert [Path(label).name for label in report["failed"]] == ["test_broken.py"]
    assert report["not_run"] == {"need nothing_of_this_name": 2}


def test_that_nothing_ran_is_no_success(tmp_path: Path) -> None:
    status, report = plain(str(tmp_path))
    assert (status, report["passed"]) == (1, 0)
