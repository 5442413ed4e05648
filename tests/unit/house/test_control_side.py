"""The control side imports and answers where torch cannot be imported."""

import configparser
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Refuses torch and what stands on it even where they are installed, then runs the rest.
WITHOUT_TORCH = """
import importlib, importlib.abc, pkgutil, sys

ABSENT = {"accelerate", "diffusers", "safetensors", "torch", "transformers"}

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
IMPORT_ALL = """
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    # A migration runs inside alembic, never by import.
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"{name}."):
        if ".migrations." not in found.name:
            importlib.import_module(found.name)
            print(found.name)
"""
HELP = """
from fastvideo.cli.main import main
sys.argv = ["fastvideo", "--help"]
sys.exit(main())
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter of its own that has no torch."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_TORCH + program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "NO_COLOR": "1", "TERM": "dumb"},
    )


def control_side() -> list[str]:
    """The packages that the import rules keep above the torch line."""
    rules = configparser.ConfigParser()
    rules.read(ROOT / ".importlinter")
    return rules["importlinter:contract:control-side"]["source_modules"].split()


def test_every_control_side_module_imports_without_torch() -> None:
    result = run(IMPORT_ALL, *control_side())
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) > 50


def test_the_command_line_helps_without_torch() -> None:
    result = run(HELP)
    assert result.returncode == 0, result.stderr
    assert "generate" in result.stdout


def test_the_guard_would_notice_torch() -> None:
    assert "No module named 'torch'" in run("import torch").stderr
