"""Each test that the table of failures names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "docs" / "failures.md"
# Files without a path are of this folder; "…" is the file named before.
FOLDER = Path("tests/integration/events")
NAMED = re.compile(r"`((?:…|[\w./]*test_\w+\.py))(?:::(\w+))?`")


def named_tests(text: str) -> list[tuple[Path, str]]:
    """File and name of each test in a row of the table; an empty name is the whole file."""
    found: list[tuple[Path, str]] = []
    for place, name in NAMED.findall(text):
        if place == "…":
            found.append((found[-1][0], name))
        else:
            whole = ROOT / (place if place.startswith("tests/") else FOLDER / place)
            found.append((whole.resolve(), name))
    return found


def test_every_named_test_exists() -> None:
    rows = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    without = [row for row in rows[1:] if not named_tests(row)]
    assert without == []
    assert len(rows) > 30
    missing = [
        f"{path.relative_to(ROOT)}::{name}"
        for path, name in named_tests("\n".join(rows))
        if not path.is_file() or (name and not re.search(rf"def {name}\(", path.read_text()))
    ]
    assert missing == []


def test_a_test_that_is_not_there_is_found() -> None:
    [(path, name)] = named_tests("| a | b | `test_no_such_file.py::test_no` |")
    assert (path.name, name, path.is_file()) == ("test_no_such_file.py", "test_no", False)
