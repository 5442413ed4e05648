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


VARIABLE = re.compile(r"\b(?:FASTVIDEO|AWS|OTEL|OMP)_[A-Z0-9_]+\b")
# What every service's environment has, and what obstore reads by itself.
COMMON = {
    "FASTVIDEO_LOG_LEVEL",
    "FASTVIDEO_METRICS_LISTEN",
    "FASTVIDEO_TRACE_FOLDER",
    "FASTVIDEO_TRACE_SAMPLE",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    *(f"FASTVIDEO_TLS_{name}" for name in ("CERT", "KEY", "CLIENT_CA")),
    *(f"FASTVIDEO_TLS_{name}" for name in ("CA", "CLIENT_CERT", "CLIENT_KEY", "PEER_NAME")),
}
OF_OBSTORE = {"AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


@pytest.mark.parametrize(
    "service", sorted(path.name for path in (ROOT / "services").iterdir() if path.is_dir())
)
def test_a_service_s_readme_lists_the_variables_that_it_reads(service: str) -> None:
    folder = ROOT / "services" / service
    config = (folder / f"fastvideo_{service}" / "config.py").read_text()
    listed = set(VARIABLE.findall((folder / "README.md").read_text()))
    assert listed - OF_OBSTORE == set(VARIABLE.findall(config)) | COMMON


def test_the_readme_fits_a_screen() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 60
