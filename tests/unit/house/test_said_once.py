"""What many rooms need is said in one of them."""

import ast
from pathlib import Path

from fastvideo.model.embedded import EMBEDDED_MODEL_ID

ROOT = Path(__file__).resolve().parents[3]
HOME = "libs/fastvideo/model/embedded.py"


def sayings(text: str) -> int:
    """How often a source has the embedded model's id as a value."""
    return sum(
        isinstance(node, ast.Constant) and node.value == EMBEDDED_MODEL_ID
        for node in ast.walk(ast.parse(text))
    )


def test_the_embedded_model_is_named_once() -> None:
    said = {
        path.relative_to(ROOT).as_posix(): sayings(path.read_text())
        for folder in ("libs/fastvideo", "services")
        for path in (ROOT / folder).rglob("*.py")
        if "/api/" not in path.as_posix()
    }
    assert {path: count for path, count in said.items() if count} == {HOME: 1}
