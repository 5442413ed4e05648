"""The documents speak of the tree as it is."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = ROOT / "libs" / "fastvideo"


def test_architecture_maps_every_room_and_service() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = {
        path.stem
        for path in LIBRARY.iterdir()
        if (path / "__init__.py").exists() or path.suffix == ".py"
    } - {"__init__", "api"}
    missing = {room for room in rooms if f"`{room}`" not in text}
    missing |= {path.name for path in (ROOT / "services").iterdir() if path.name not in text}
    assert missing == set()


def test_decisions_are_numbered_without_gaps_and_say_what_they_cost() -> None:
    files = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [int(path.name[:4]) for path in files] == list(range(1, len(files) + 1))
    for path in files:
        text = path.read_text()
        assert text.startswith(f"# {int(path.name[:4])}. "), path.name
        sections = ["## Context", "## Decision", "## What it costs"]
        assert [line for line in text.splitlines() if line.startswith("## ")] == sections, path.name


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_make_targets_in_a_document_exist(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / name).read_text()))
    assert targets
    assert {target for target in targets if f"\n{target}:" not in makefile} == set()


@pytest.mark.parametrize(
    "name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "deploy/README.md"]
)
def test_links_and_paths_of_a_document_exist(name: str) -> None:
    file = ROOT / name
    text = file.read_text()
    linked = re.findall(r"\]\(([^)#:]+)\)", text)
    quoted = re.findall(r"`((?:tests|libs|services|deploy|docs|proto)/[\w./-]*\w)/?`", text)
    missing = [path for path in linked if not (file.parent / path).exists()]
    missing += [path for path in quoted if not (ROOT / path).exists()]
    assert missing == []


def test_the_readme_fits_a_screen() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 60
