"""Wrong usage of the commands about the log and of replays: told before anybody is asked."""

import pytest
from typer.testing import CliRunner

from fastvideo.cli.main import build


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("log", "export", "log.csv"), "FILE"),
        (("log", "export", "log.jsonl", "--type", "no.such"), "--type"),
        (("log", "show", "--type", "no.such"), "--type"),
        (("log", "show", "--since", "1h", "--until", "2h"), "--until"),
        (("log", "tail", "--type", "no.such"), "--type"),
        (("log", "show", *(f"--request=r{n}" for n in range(101))), "--request"),
        (("log", "show", ""), "STREAM|REQUEST"),
        (("log", "show", " "), "STREAM|REQUEST"),
        (("log", "behaviors", "--where", "seeds"), "--where"),
        (("replay", "cache", "r1", "--sample", "0"), "--sample"),
        (("replay", "cache", "r1", "--sample", "nan"), "--sample"),
        (("replay", "cache", "r1", "--sample", "1.5"), "--sample"),
        (("replay", "execution", "r1", "--families", "mine"), "--families"),
    ],
)
def test_wrong_usage_exits_2_and_names_what_is_wrong(
    arguments: tuple[str, ...], named: str
) -> None:
    # Nobody answers there, and nobody is asked.
    result = CliRunner().invoke(build(), [*arguments, "--gateway", "127.0.0.1:1"])
    assert result.exit_code == 2
    assert named in result.stderr
    assert "1 does not answer" not in result.stderr
