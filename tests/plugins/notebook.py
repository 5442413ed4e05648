"""IPython's own shell, the one that kernels extend; tests are skipped by name where it is not."""

import atexit
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def notebook_shell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A shell without history; what cells display is in `display_pub.outputs`."""
    monkeypatch.setenv("IPYTHONDIR", str(folder))
    # A shell makes its cells' module the main one, and leaves it so; processes that later tests
    # spawn are begun from the main module.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    shells = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    capture = pytest.importorskip("IPython.core.displaypub").CapturingDisplayPublisher
    shells.clear_instance()
    shell = shells.instance()
    shell.history_manager.enabled = False
    shell.display_pub = capture(parent=shell)
    try:
        yield shell
    finally:
        shell.atexit_operations()
        atexit.unregister(shell.atexit_operations)
        shells.clear_instance()
