"""docs/client.md does what it says: its blocks are run, in order, against a stack."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from fastvideo import errors
from tests.e2e.stack import Stack

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "client.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ADDRESS = "127.0.0.1:50051"


@pytest.mark.slow
def test_every_block_runs(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    text = DOCUMENT.read_text()
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) > 10
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "document"}
    try:
        for block in blocks:
            line = text[: block.start()].count("\n") + 2
            source = "\n" * (line - 1) + textwrap.dedent(block[1].replace(ADDRESS, stack.gateway))
            exec(compile(source, str(DOCUMENT), "exec"), names)
    finally:
        for name in ("client", "patient"):
            if name in names:
                names[name].close()
    told = capsys.readouterr().out
    assert "black background. a red three moving left. a blue two moving up" in told
    assert "WAIT_TIMEOUT req_" in told
    assert "sampling.steps - " in told
    assert (tmp_path / "seven.mp4").read_bytes()[4:8] == b"ftyp"


def test_every_error_of_the_table_exists() -> None:
    table = DOCUMENT.read_text().split("## Errors")[1].split("## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(named) > 10
    assert {name for name in named if not hasattr(errors, name)} == set()
