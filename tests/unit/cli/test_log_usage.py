"""Wrong usage of the commands about the log and of replays: told before anybody is asked."""

import json

import pytest
from typer.testing import CliRunner

from fastvideo.cli.main import build
from fastvideo.errors import Unavailable


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("log", "export", "log.csv"), "FILE"),
        (("log", "export", "no-such-folder/log.jsonl"), "no-such-folder"),
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


@pytest.mark.parametrize("arguments", [("log", "verify"), ("log", "rebuild"), ("replay", "state")])
def test_where_1_is_an_answer_no_answer_is_2(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise Unavailable("nobody answers")

    for name in ("log_verifying.verify_log", "rebuilding.rebuild_projections", "replaying.run"):
        monkeypatch.setattr(f"fastvideo.cli.{name}", away)
    monkeypatch.setattr("fastvideo.cli.replaying._run", away_from_here)
    result = CliRunner().invoke(build(), [*arguments, "--json", "--gateway", "127.0.0.1:1"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["reason"] == "UNAVAILABLE"


def away_from_here(*_: object) -> None:
    """What would run the replay."""
