"""One way from a checkpoint to an object."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HOME = "libs/fastvideo/models/loading/"
# They run the upstream pipeline, to compare with.
REFERENCE = "parity.py"
READERS = {"from_pretrained", "load_file", "safe_open", "load_state_dict"}


def readers(source: str) -> set[str]:
    """How a source reads weights or configurations by itself."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            found |= {name} & READERS
    return found


def sources() -> Iterator[tuple[str, str]]:
    """Path and text of what is about models and their loops."""
    for room in ("engine", "loops", "models"):
        for path in sorted((ROOT / "libs/fastvideo" / room).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


@pytest.mark.row("MOD-06")
def test_components_are_read_in_one_place() -> None:
    own = {name for name, text in sources() if readers(text) and not name.endswith(REFERENCE)}
    assert own
    assert [name for name in own if not name.startswith(HOME)] == []


def test_a_second_way_would_be_found() -> None:
    assert readers("UMT5EncoderModel.from_pretrained(folder)") == {"from_pretrained"}
    assert readers("tensors = load_file(path)") == {"load_file"}
    assert readers("torch.cat(tensors)") == set()
