"""Marks name conformance rows that exist."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
ROWS = TESTS / "rows.txt"


def marked(source: str) -> Iterator[tuple[int, str]]:
    """The line and id of every row that a source marks."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr != "row":
            continue
        for argument in node.args:
            # Anything but a literal is as good as an unknown id: nobody can search for it.
            value = argument.value if isinstance(argument, ast.Constant) else ast.dump(argument)
            yield node.lineno, str(value)


def test_every_marked_row_exists() -> None:
    rows = set(ROWS.read_text().split())
    unknown = [
        f"{path.relative_to(TESTS)}:{line}: {row}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for line, row in marked(path.read_text())
        if row not in rows
    ]
    assert unknown == []


def test_the_list_of_rows_has_no_repeats() -> None:
    rows = ROWS.read_text().split()
    assert len(rows) == len(set(rows)) > 400


def test_a_mark_of_an_unknown_row_is_found() -> None:
    # Put together here, so that a search for marked rows does not find this line.
    source = "@pytest.mark." + "row('A-1', 'B-' + '2')\ndef test(): ..."
    first, second = [row for _, row in marked(source)]
    assert first == "A-1"
    assert second not in ROWS.read_text().split()
