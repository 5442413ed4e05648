"""The picture of an explanation, drawn into a file."""

import subprocess
import sys
from pathlib import Path

import pytest

from fastvideo.errors import FailedPrecondition
from fastvideo.explain.picture import save_picture
from fastvideo.scheduling.events import QueueRequest, RestartRequest, WorkerLost
from tests.unit.explain.tale import (
    ME,
    OTHER,
    Tale,
    assign,
    dispatch,
    executed,
    plan,
    prepared,
    ref,
    result,
)

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MODULES = "fastvideo.cli.main, fastvideo.cli.explanation, fastvideo.explain.picture"


def told() -> Tale:
    """Queued, shared, lost and begun again."""
    tale = Tale()
    tale.decides(0.0, QueueRequest(request_id=ME, position=2, reason="full"))
    tale.decides(1.0, assign())
    tale.hears(1.0, prepared(seconds=0.0))
    tale.decides(1.0, dispatch("1-1", (ref(), 0), (ref(OTHER), 0)))
    results = [result(ref(), 0, 1.0, then=plan(ref(), 1)), result(ref(OTHER), 0, 1.0)]
    tale.hears(2.0, executed("1-1", *results, seconds=1.0))
    tale.hears(
        3.0,
        WorkerLost(worker_id="w1", reason="silent"),
        RestartRequest(request_id=ME, attempt=2, reason="silent"),
        assign(ref(attempt=2), "w2"),
    )
    return tale


def test_a_picture_is_a_png_of_readable_size(tmp_path: Path) -> None:
    path = tmp_path / "why.png"
    save_picture(told().explained(now=4.0), path)
    data = path.read_bytes()
    assert data.startswith(SIGNATURE)
    width, height = (int.from_bytes(data[at : at + 4]) for at in (16, 20))
    assert width == 1500
    assert 300 < height < 3_000


def test_a_request_that_has_just_come_can_be_drawn(tmp_path: Path) -> None:
    path = tmp_path / "why.png"
    save_picture(Tale().explained(now=0.0), path)
    assert path.read_bytes().startswith(SIGNATURE)


def test_without_matplotlib_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(FailedPrecondition, match="matplotlib"):
        save_picture(told().explained(), tmp_path / "why.png")


def test_nothing_but_drawing_imports_matplotlib() -> None:
    program = f"import sys, {MODULES}; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
