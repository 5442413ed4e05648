"""Bars, and where there is no terminal to draw them on."""

import io
import sys

import pytest
from rich.progress import TextColumn

from fastvideo.cli.counting import counting_bar, terminal_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_tells_what_it_is_of_and_how_much_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with terminal_bar(TextColumn("{task.percentage:>3.0f} %")) as bar:
        task = bar.add_task("verifying", total=4)
        bar.update(task, completed=1)
    assert "verifying" in terminal.getvalue()
    assert "25 %" in terminal.getvalue()


def test_where_there_is_no_terminal_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with counting_bar() as bar:
        bar.update(bar.add_task("verifying", total=4), completed=1)
    assert capsys.readouterr() == ("", "")
