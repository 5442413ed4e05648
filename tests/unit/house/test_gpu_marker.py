"""The suite runs without an accelerator: a test that asks for one is marked `gpu`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
MAKEFILE = TESTS.parent / "Makefile"

UNMARKED = """
def test_one():
    assert torch.ones(1, device="cuda").item() == 1
"""
MARKED = """
@pytest.mark.gpu
def test_one():
    torch.cuda.synchronize()

@pytest.mark.gpu
class TestMany:
    def test_two(self):
        assert torch.ones(1, device="cuda:0").item() == 1
"""


def asks_for_an_accelerator(node: ast.AST) -> bool:
    """Whether the code names CUDA as a module or a device."""
    return any(
        (isinstance(part, ast.Attribute) and part.attr == "cuda")
        or (
            isinstance(part, ast.Constant)
            and isinstance(part.value, str)
            and part.value.split(":")[0] == "cuda"
        )
        for part in ast.walk(node)
    )


def unmarked(source: str) -> Iterator[str]:
    """Names of the top-level definitions that ask for an accelerator and do not say so."""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        marks = {ast.unparse(decorator) for decorator in node.decorator_list}
        if asks_for_an_accelerator(node) and "pytest.mark.gpu" not in marks:
            yield node.name


def test_the_check_finds_what_is_not_marked() -> None:
    assert list(unmarked(UNMARKED)) == ["test_one"]
    assert list(unmarked(MARKED)) == []


@pytest.mark.row("TST-14")
def test_whatever_asks_for_an_accelerator_is_marked_gpu() -> None:
    found = {
        str(path.relative_to(TESTS)): names
        for path in sorted(TESTS.rglob("*.py"))
        if path != Path(__file__).resolve() and (names := list(unmarked(path.read_text())))
    }
    assert found == {}


@pytest.mark.row("TST-14")
def test_the_suites_of_every_day_leave_gpu_tests_out() -> None:
    runs = [line for line in MAKEFILE.read_text().splitlines() if "-m pytest" in line]
    assert runs
    assert [line for line in runs if "not gpu" not in line] == []
